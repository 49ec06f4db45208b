"""Who meets whom: graphs from several sources as one sparse matrix."""

import warnings
from typing import Any, cast

import numpy
import torch
from numpy.typing import NDArray

from hpckit.inference.checks import check_counts
from hpckit.inference.noise import Context
from hpckit.parallel.errors import SetupError


def watts_strogatz_edges(n_agents: int, degree: int, p: float, seed: int) -> NDArray[numpy.int64]:
    """Return the edges of networkx.watts_strogatz_graph, (E, 2): a ring with some edges rewired.

    Raises:
        SetupError: networkx is not installed.
    """
    try:
        import networkx  # noqa: PLC0415 - only who makes the graph needs it
    except ImportError as error:
        raise SetupError(
            "networkx, which builds the graph, is missing: pip install networkx"
        ) from error
    graph = networkx.watts_strogatz_graph(n_agents, degree, p, seed=seed)
    return numpy.array(graph.edges, dtype=numpy.int64).reshape(-1, 2)


# A networkx graph, edges (E, 2), or a sparse matrix of scipy or torch: told apart as they come,
# since neither networkx nor scipy need be installed.
Graph = Any


class Contacts:
    """The contacts of N agents, 0 or 1 for each pair.

    Attributes:
        n_agents: N.
    """

    def __init__(
        self, graph: Graph, n_agents: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        """Read a graph.

        Args:
            graph: a networkx graph; or an array of edges (E, 2), each pair once or both ways round;
                or a sparse matrix of scipy or torch, whose row i has the agents that i meets.
            n_agents: needed with edges if the last agents meet nobody.
            device: where the sums are made.

        Raises:
            SetupError: the graph is of another kind, or names agents that are not there.
        """
        if n_agents is not None:
            check_counts(0, n_agents=n_agents)
        rows, columns, known = _pairs(graph)
        self.n_agents = known if n_agents is None else n_agents
        _check(rows, columns, self.n_agents)
        pairs = numpy.unique(rows * self.n_agents + columns)
        rows, columns = numpy.divmod(pairs, max(self.n_agents, 1))
        back = numpy.lexsort((rows, columns))
        self._symmetric = numpy.array_equal(rows, columns[back]) and numpy.array_equal(
            columns, rows[back]
        )
        self._indices = {False: _csr(rows, columns, self.n_agents, device)}
        if not self._symmetric:
            self._indices[True] = _csr(columns[back], rows[back], self.n_agents, device)
        self._matrices: dict[tuple[bool, torch.dtype], torch.Tensor] = {}

    @property
    def starts_and_columns(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Who meets whom: for each agent where its part begins, (N + 1,), of whom it meets."""
        return self._indices[False]

    def sum_over(self, x: torch.Tensor, *, backwards: bool = False) -> torch.Tensor:
        """Return for each agent the sum over those it meets, or over those who meet it: (B, N)."""
        return cast("torch.Tensor", _Sum.apply(x, self, backwards))  # type: ignore[no-untyped-call]

    def multiply(self, x: torch.Tensor, backwards: bool = False) -> torch.Tensor:
        """Do what `sum_over` does, for tensors that torch.func has not wrapped."""
        return (self._matrix(backwards and not self._symmetric, x.dtype) @ x.T).T.contiguous()

    def _matrix(self, backwards: bool, dtype: torch.dtype) -> torch.Tensor:
        if (backwards, dtype) not in self._matrices:
            starts, columns = self._indices[backwards]
            ones = torch.ones(len(columns), dtype=dtype, device=columns.device)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
                # torch 2.11 says so although they are asked for.
                warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly")
                matrix = torch.sparse_csr_tensor(
                    starts, columns, ones, (self.n_agents,) * 2, check_invariants=True
                )
            self._matrices[backwards, dtype] = matrix
        return self._matrices[backwards, dtype]


class _Sum(torch.autograd.Function):
    """The product, also for torch.func: its wrapped tensors cannot meet a sparse matrix."""

    @staticmethod
    def forward(x: torch.Tensor, contacts: Contacts, backwards: bool) -> torch.Tensor:
        return contacts.multiply(x, backwards)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        _, ctx.contacts, ctx.backwards = inputs

    @staticmethod
    def backward(ctx: Context, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.contacts.sum_over(gradients[0], backwards=not ctx.backwards), None, None

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor) -> torch.Tensor:
        summed: torch.Tensor = ctx.contacts.sum_over(tangents[0], backwards=ctx.backwards)
        return summed

    @staticmethod
    def vmap(
        info: Any,  # noqa: ANN401
        in_dims: tuple[int | None, ...],
        x: torch.Tensor,
        contacts: Contacts,
        backwards: bool,
    ) -> tuple[torch.Tensor, int]:
        rows = x.movedim(in_dims[0] or 0, 0)
        summed = contacts.sum_over(rows.flatten(0, -2), backwards=backwards)
        return summed.reshape(rows.shape), 0


def _pairs(graph: Graph) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], int]:
    """Return rows and columns of the matrix, and the number of agents as far as it is known."""
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        number = {node: position for position, node in enumerate(graph.nodes)}
        ends = [(number[one], number[other]) for one, other in graph.edges()]
        edges = numpy.array(ends, dtype=numpy.int64).reshape(-1, 2)
        if graph.is_directed():  # along an edge its second agent is infected by the first
            return edges[:, 1], edges[:, 0], len(number)
        return *_both_ways(edges), len(number)
    if isinstance(graph, torch.Tensor) and graph.layout != torch.strided:
        pairs = graph.to_sparse_coo()  # type: ignore[no-untyped-call]
        pairs = pairs.coalesce()
        # A zero that is written down, as after A[i, j] = 0, is not a contact.
        met = (pairs.values().flatten(1) if pairs.dense_dim() else pairs.values()[:, None]) != 0
        rows, columns = pairs.indices()[:, met.any(1)].cpu().numpy()
        return rows, columns, max(graph.shape)
    if hasattr(graph, "tocoo"):
        matrix = graph.tocoo()
        met = matrix.data != 0
        rows, columns = (ends[met].astype(numpy.int64) for ends in (matrix.row, matrix.col))
        return rows, columns, max(matrix.shape)
    edges = numpy.asarray(graph.cpu() if isinstance(graph, torch.Tensor) else graph)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise SetupError(
            f"A graph of shape {edges.shape} and type {edges.dtype} is not a list of edges: give "
            "whole numbers of shape (E, 2), a sparse matrix, or a networkx graph."
        )
    return *_both_ways(edges.astype(numpy.int64)), int(edges.max(initial=-1)) + 1


def _both_ways(edges: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
    return numpy.concatenate((edges, edges[:, ::-1])).T


def _check(rows: NDArray[numpy.int64], columns: NDArray[numpy.int64], n_agents: int) -> None:
    if not len(rows):
        return
    low, high = min(rows.min(), columns.min()), max(rows.max(), columns.max())
    if low < 0 or high >= n_agents:
        raise SetupError(
            f"The graph names agents {low} to {high}, but there are {n_agents} agents: "
            "number them from 0."
        )


def _csr(
    rows: NDArray[numpy.int64],
    columns: NDArray[numpy.int64],
    n_agents: int,
    device: torch.device | str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return starts of rows and columns, from pairs in order of rows."""
    starts = numpy.searchsorted(rows, numpy.arange(n_agents + 1))
    # 32 bits are a fifth faster; MKL takes these as they are.
    kind = torch.int32 if len(columns) < 2**31 else torch.int64
    found = torch.empty(len(starts), dtype=kind), torch.empty(len(columns), dtype=kind)
    for target, source in zip(found, (starts, columns), strict=True):
        # What torch itself makes of an empty array, torch 2.11 takes for not contiguous.
        target.copy_(torch.from_numpy(source))
    return found[0].to(device), found[1].to(device)
