"""The training workloads on a GPU: whatever way is taken, losses are the CPU's.

A GPU adds up float32 in another order. How far a curve may be from the CPU's was found on a CPU, by
random changes of all gradients (14 steps of the cnn by SGD): of 1e-5 of the largest one, losses
change by up to 1e-5; of 5e-4, as TF32 rounds, and 4e-3, as bf16 does, by up to 1.4e-2. Adam divides
small gradients by themselves: it makes 2e-2 of the 1e-5. resnet18 makes 5e-4 of them in 3 steps.

Without `ieee`, convolutions are in TF32, as torch has them by default.
"""

from collections.abc import Sequence

from tests.gpu.checks import Recorder, check
from tests.gpu.machine import Machine
from tests.gpu.runs import PLAIN, SHORT, Ended, Run, deviation, failed, make_runs

# Relative to each of the losses: several times what is said above.
FLOAT32, ADAM, TF32, BF16, DEEP = 1e-4, 5e-2, 5e-2, 0.1, 5e-3
RESNET = ("--data", "digits", "--model", "resnet18", "--limit", "40", "--batch-size", "16",
          "--epochs", "1", "--log-every", "1", "--optimizer", "sgd", "--lr", "0.01")  # fmt: skip
# The last of its batches has one sample: the second rank has none.
GPT = ("--model", "gpt-small", "--limit", "9", "--batch-size", "4", "--epochs", "1",
       "--log-every", "1", "--optimizer", "sgd", "--lr", "0.01")  # fmt: skip


def compare(
    report: Recorder, runs: dict[str, Ended], limits: Sequence[tuple[str, str, float]]
) -> None:
    """Record how far curves are from that of a run of reference.

    Args:
        report: of the check.
        runs: what was made.
        limits: name of a run, of its reference, and how far it may be off.
    """
    for name, reference, within in limits:
        run, other = runs[name], runs[reference]
        if run.problem or other.problem:
            failed(report, name, run.problem or f"{reference}: {other.problem}")
            continue
        losses = run.rows("loss")
        report.figure(
            f"{name}: largest difference of {len(losses)} losses",
            deviation(losses, other.rows("loss")),
            at_most=within,
            peer=reference,
            note=f"relative; the last is {losses[-1]:.4f}" if losses else "there is no loss",
        )


@check("ddp: losses on the GPU are the CPU's", budget_s=16,
       needs=("torch", "package:sklearn", "shared GPU"))  # fmt: skip
def test_ddp(report: Recorder, machine: Machine) -> None:
    runs = [
        Run(name="ddp, CPU", on="cpu"),
        Run(name="ddp, one process"),
        Run(name="ddp, NCCL, 1 rank", backend="nccl"),
        Run(name="ddp, 2 ranks on one GPU, gloo", ranks=2, backend="gloo"),
    ]
    limits = [(run.name, "ddp, CPU", FLOAT32) for run in runs[1:]]
    if not machine.dry:
        runs += [
            Run(name="ddp, data on the host", words=(*SHORT, "--data-on", "host")),
            Run(name="ddp, accumulating", words=(*SHORT, "--accumulate", "3")),
            Run(name="ddp, ZeRO, NCCL", words=(*SHORT, "--zero"), backend="nccl"),
        ]
        limits += [(run.name, "ddp, CPU", FLOAT32) for run in runs[4:]]
        runs += [
            Run(name="ddp, Adam, CPU", words=PLAIN, on="cpu"),
            Run(name="ddp, Adam", words=PLAIN),
        ]
        limits += [("ddp, Adam", "ddp, Adam, CPU", ADAM)]
        others = {
            "tf32": (Run(name="ddp, TF32", ieee=False), TF32),
            "bf16": (Run(name="ddp, bf16", words=(*SHORT, "--precision", "bf16")), BF16),
        }
        for word, (run, within) in others.items():
            if why := machine.lacks(word):
                report.absent(run.name, why)
                continue
            runs.append(run)
            limits.append((run.name, "ddp, CPU", within))
    compare(report, make_runs(report, machine, runs, limit_s=120), limits)


@check(
    "ddp: resnet18 and gpt-small on two ranks of one GPU",
    budget_s=18,
    needs=("torch", "package:sklearn", "shared GPU"),
)
def test_ddp_models(report: Recorder, machine: Machine) -> None:
    two = machine.pick(("2 ranks", 2), ("1 rank", 1))  # two on two cores take a minute
    norm = ("--sync-batch-norm",) if not machine.dry else ()
    gpt = machine.pick(GPT, ("--model", "linear", *GPT[2:]))
    runs = [
        Run(name="gpt, CPU", words=gpt, on="cpu"),
        Run(name=f"gpt, {two[0]}, gloo", words=gpt, ranks=two[1], backend="gloo"),
    ]
    limits = [(runs[1].name, "gpt, CPU", DEEP)]
    if why := machine.lacks("bf16"):
        report.absent("gpt, bf16", why)
    else:
        half = (*gpt, "--precision", "bf16")
        runs += [Run(name="gpt, bf16", words=half, ranks=two[1], backend="gloo")]
        limits += [("gpt, bf16", "gpt, CPU", BF16)]
    if not machine.dry:
        resnets = [
            Run(name="resnet18, CPU", words=RESNET, on="cpu"),
            Run(name="resnet18, one process", words=RESNET),
            Run(name="resnet18, SyncBatchNorm, 2 ranks, gloo", words=(*RESNET, *norm), ranks=2,
                backend="gloo"),
        ]  # fmt: skip
        runs += resnets
        limits += [(run.name, "resnet18, CPU", DEEP) for run in resnets[1:]]
    compare(report, make_runs(report, machine, runs, limit_s=120), limits)


def first_gpu(machine: Machine) -> str:
    """Return what CUDA_VISIBLE_DEVICES must be for the machine's GPU to be the only one."""
    uuid: str = machine.unit.info.uuid
    return uuid


@check(
    "dp, mirrored, from_scratch: losses on the GPU are the CPU's",
    budget_s=14,
    needs=("torch", "package:sklearn", "shared GPU"),
)
def test_one_process(report: Recorder, machine: Machine) -> None:
    one, two = machine.pick(("cuda:0", "cuda:0 x 2"), ("cpu", "cpu:2"))

    def run(name: str, workload: str, *words: str, on: str = "gpu") -> Run:
        common = PLAIN if workload == "from_scratch" else SHORT  # it has one optimizer
        return Run(name=name, workload=workload, words=(*common, *words), on=on)

    runs = [
        run("mirrored, CPU", "mirrored", "--devices", "cpu", on="cpu"),
        run("mirrored, two replicas on one GPU", "mirrored", "--devices", two),
        run("dp, two replicas on one GPU", "dp", "--devices", two),
    ]
    limits = [(row.name, "mirrored, CPU", FLOAT32) for row in runs[1:]]
    if not machine.dry:
        runs += [
            run("dp, one GPU", "dp", "--devices", one),
            run("mirrored, one GPU", "mirrored", "--devices", one),
            run("mirrored, microbatches", "mirrored", "--devices", two, "--microbatch", "16"),
            run("mirrored, GPU and CPU", "mirrored", "--devices", one, "cpu"),
        ]
        limits += [(row.name, "mirrored, CPU", FLOAT32) for row in runs[3:]]
        scratch = [
            run("from scratch, CPU", "from_scratch", "--devices", "cpu", on="cpu"),
            run("from scratch, one GPU", "from_scratch", "--devices", one),
            run("from scratch, three replicas, ring", "from_scratch", "--devices", "cuda:0 x 3",
                "--reduce", "ring"),
        ]  # fmt: skip
        limits += [(row.name, "from scratch, CPU", FLOAT32) for row in scratch[1:]]
        runs += scratch
    compare(report, make_runs(report, machine, runs, limit_s=120), limits)


@check("What would wait for ever on one GPU is refused", budget_s=9,
       needs=("torch", "package:sklearn", "shared GPU"))  # fmt: skip
def test_refused(report: Recorder, machine: Machine) -> None:
    """Two ranks over NCCL; two backward passes that wait for each other in a GPU's one thread."""
    if machine.dry:
        report.absent("a shared GPU", "the CPU stands in for it; its ranks and replicas may share")
        return
    words = ("--model", "linear", "--epochs", "1")
    norm = (*RESNET, "--sync-batch-norm", "--devices", "cuda:0 x 2")
    only_first = {"CUDA_VISIBLE_DEVICES": first_gpu(machine)}
    ranks = Run(name="two ranks, NCCL", words=words, ranks=2, environ=only_first)
    replicas = Run(name="BatchNorm over two replicas", workload="mirrored", words=norm)
    ended = make_runs(report, machine, [ranks, replicas], limit_s=60)
    for run, wanted in ((ranks, "HPCKIT_BACKEND=gloo"), (replicas, "replicas share cuda:0")):
        one = ended[run.name]
        good = one.process.returncode == 1 and wanted in one.process.stderr
        report.fact(run.name, one.problem or "it trained", good=good)


@check("--compile: losses are those without", budget_s=34,
       needs=("torch", "package:sklearn", "package:triton", "compiler", "shared GPU"))  # fmt: skip
def test_compiled(report: Recorder, machine: Machine) -> None:
    if machine.dry:  # minutes of a C++ compiler; tests/workloads has a cheaper one
        report.absent("--compile", "the CPU stands in for a GPU")
        return
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(machine.folder / "inductor"),
             "TRITON_CACHE_DIR": str(machine.folder / "triton")}  # fmt: skip
    words = (*SHORT, "--compile")
    runs = [
        Run(name="ddp, not compiled"),
        Run(name="ddp, compiled", words=words, environ=cache),
        Run(name="mirrored, compiled", workload="mirrored",
            words=(*words, "--devices", "cuda:0"), environ=cache),
        Run(name="mirrored, compiled, two replicas", workload="mirrored",
            words=(*words, "--devices", "cuda:0 x 2"), environ=cache),
    ]  # fmt: skip
    limits = [(run.name, "ddp, not compiled", FLOAT32) for run in runs[1:]]
    compare(report, make_runs(report, machine, runs, limit_s=180), limits)
