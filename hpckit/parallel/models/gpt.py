"""A transformer that predicts the next token: decoder only, normalized before each part."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from hpckit.parallel.errors import SetupError
from hpckit.parallel.models.networks import Verbose


class Attention(nn.Module):
    """Each token looks at itself and at those before it, in its own sample only."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.look = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return as many numbers as came in, shape (batch, length, width)."""
        batch, length, width = x.shape
        # To (query, key or value; batch; head; token; numbers of the head).
        parts = self.look(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        # Of no sample: flash attention refused that in torch 2.4 to 2.9 (pytorch/pytorch#133780).
        seen = scaled_dot_product_attention(query, key, value, is_causal=True) if batch else value
        out: Tensor = self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return out


class Layer(nn.Module):
    """Attention between tokens, then two linear layers for each token by itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.wide_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return as many numbers as came in, shape (batch, length, width)."""
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.narrow(gelu(self.widen(self.wide_norm(x))))
        return out


class GPT(Verbose):
    """Scores of the next token after each token; the defaults have 85.8 million parameters.

    There is no dropout on purpose: its noise would depend on how replicas share a batch.

    Args:
        layers: how many.
        width: numbers that stand for a token.
        heads: parts that `width` is divided into for attention.
        context: the most tokens a sample can have.
        vocabulary: how many tokens there are; 256 for bytes.
        tied: use the embedding of tokens also for their scores.
        verbose: see `Verbose`.

    Raises:
        SetupError: the width cannot be divided into these heads.
    """

    def __init__(
        self,
        *,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        context: int = 512,
        vocabulary: int = 256,
        tied: bool = False,
        verbose: bool = False,
    ) -> None:
        super().__init__(verbose=verbose)
        if heads < 1 or width % heads:
            raise SetupError(f"a width of {width} cannot be divided into {heads} heads")
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(context, width)
        stack = [Layer(width, heads) for _ in range(layers)]
        self.layers = nn.Sequential(*stack)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(_first_weights)
        for layer in stack:
            # Each layer adds to the same numbers twice: what it adds starts small.
            for last in (layer.attention.out, layer.narrow):
                nn.init.normal_(last.weight, std=0.02 / (2 * layers) ** 0.5)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores of shape (batch, length, vocabulary) for tokens of (batch, length).

        Raises:
            ValueError: the samples are longer than the context.
        """
        self.announce(tokens)
        length = tokens.shape[1]
        if length > self.context:
            raise ValueError(
                f"Samples of {length} tokens do not fit into the context of {self.context}: make "
                f"windows of at most that, or the model with context={length}."
            )
        places = torch.arange(length, device=tokens.device)
        x = self.layers(self.tokens(tokens) + self.places(places))
        scores: Tensor = self.head(self.norm(x))
        return scores


def _first_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
