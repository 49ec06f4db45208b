# hpckit's commands for people who work on it. `make demo` and `make test` need nothing but Python
# 3.11 or newer and make; on a Debian-like system as root, `make test` installs real Slurm as well.
PYTHON ?= python3
VENV := .venv
CLIENTS := .venv-clients
MPICH := .venv-mpich
BIN := $(VENV)/bin
SETUP := pyproject.toml constraints-dev.txt
# Versions of all that the environments of tests have: a new release breaks no test by itself.
PINS ?= -c constraints-dev.txt
ALL_CAN_RUN := $(shell test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo 1)

# hpckit is started some thousand times: each would compile all of it where no bytecode may be kept,
# and each pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo fast fast-tests test pytest lint house format slurm-up slurm-down bench clean

# One line from nothing to a trained model: 8 ranks, on this machine (no Slurm needed).
demo: $(VENV)/.demo
	$(BIN)/hpckit submit ddp --nodes 2 --gpus 4 --wait
	@echo
	$(BIN)/hpckit logs latest
	@echo
	$(BIN)/hpckit status latest

# The commands, from the page that explains them.
help:
	@sed -n 's/^    \(make .*\)/\1/p' CONTRIBUTING.md

# The loop while you work, under a minute on 2 cores: lint, types, and the tests that need no torch,
# Slurm, root or network. CONTRIBUTING.md says what it leaves out.
fast: $(VENV)/.fast
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint fast-tests

# Three at once, since some tests wait.
FAST := advice report stats unit
fast-tests: $(VENV)/.fast
	HPCKIT_FAST=1 env --default-signal $(BIN)/python -m pytest -q -n 3 --dist worksteal \
		-m 'not (torch or slurm or clients or long)' $(ARGS) $(FAST:%=tests/%)

# Everything: system packages (as root), virtual environments, lint, all tests.
# The clients' environment is made beside the others and the lint: each of them keeps one core busy.
test: system
	$(MAKE) --no-print-directory -j2 --output-sync=target linted $(CLIENTS)/.done
	$(MAKE) --no-print-directory pytest

.PHONY: linted
linted: $(VENV)/.dev $(MPICH)/.done
	$(MAKE) --no-print-directory -j1 lint

# As root on Debian everything can run, so there a skipped test is a failed one.
pytest: $(VENV)/.dev
	HPCKIT_CLIENTS_VENV=$(CURDIR)/$(CLIENTS) HPCKIT_MPICH_VENV=$(CURDIR)/$(MPICH) \
		HPCKIT_NO_SKIPS=$(ALL_CAN_RUN) \
		tests/run.sh $(ARGS)

# Without torch there are no types of what stands on it.
MYPY = $(BIN)/mypy $(if $(wildcard $(VENV)/.dev),,--exclude '/(importable|parallel|inference|jobs|gpu)/' hpckit)

# The quick tests under each Python from 3.11 to 3.14 that this machine has.
.PHONY: matrix
matrix:
	tests/matrix.sh

lint: $(VENV)/.fast
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MYPY)
	$(BIN)/lint-imports
	$(BIN)/hpckit templates lint
	$(BIN)/shellcheck tests/run.sh tests/matrix.sh tests/setup_system.sh .ci/run

# How large everything is.
house:
	@$(PYTHON) -m tests.house

format: $(VENV)/.fast
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Pages that are made from the code, and the site of all pages: build/site/index.html.
.PHONY: docs pages site
docs: pages site

pages: $(VENV)/.fast
	$(BIN)/python docs/make_options.py
	$(BIN)/python docs/make_words.py
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_schemas.py

# A warning, as a link to nowhere, is an error. All pages are written: each has the navigation.
site: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -a -W --keep-going -n -c docs -d build/trees . build/site

# On a machine with an NVIDIA GPU, without network if need be: gpu-report.md and gpu-report.json.
# PYTHON is one whose torch has CUDA; docs/gpu.md. OUT is where the report goes, ARGS are pytest's.
GPU_OUT ?= .
.PHONY: test-gpu gpu-wheels
test-gpu:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "test-gpu: $(PYTHON) is not Python 3.11 or newer: make test-gpu PYTHON=/path/to/python3. Nothing was tested." >&2; exit 2; }
	@began=$$(date +%s) && $(PYTHON) tests/gpu/prepare.py && \
		.venv-gpu/bin/python -m tests.gpu --out "$(GPU_OUT)" --before $$(($$(date +%s) - began)) $(ARGS)

# What such a machine may lack, for it to install without network: PY is its Python's version.
# GPU_MACHINE is its kind, where it is another than here: aarch64 for a GH200.
# WITH=deepwave is for wave_inversion's check: 100 MB more.
PY ?= 3.12
gpu-wheels:
	@$(PYTHON) tests/gpu/prepare.py wheels $(PY) --more "$(WITH)" $(if $(GPU_MACHINE),--machine $(GPU_MACHINE))

.PHONY: system
system:
	tests/setup_system.sh

# Two nodes x four (pretended) GPUs with accounting, as root:  eval "$$(make -s slurm-up)"
slurm-up:
	@$(PYTHON) -m tests.slurmbox up

# The tests on real Slurm with another Debian's: make other-slurm SUITE=trixie (24.11) or forky (26.05).
SUITE ?= trixie
.PHONY: other-slurm
other-slurm: $(VENV)/.dev $(CLIENTS)/.done $(MPICH)/.done
	tests/other_slurm.sh $(SUITE) $(ARGS)

slurm-down:
	@$(PYTHON) -m tests.slurmbox down

bench: $(VENV)/.dev .venv-nvitop/.done
	$(BIN)/python benchmarks/cli.py
	$(BIN)/python benchmarks/sampler.py --nvitop .venv-nvitop
	$(BIN)/python benchmarks/stats.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/mirrored.py
	$(BIN)/python benchmarks/wave_inversion.py

# The versions and hashes of hpckit's own dependencies, anew: see constraints.txt.
.PHONY: constraints
constraints: $(VENV)/.pip
	$(BIN)/pip install --quiet uv
	{ sed '/^[^#]/,$$d' constraints.txt; $(BIN)/uv pip compile pyproject.toml --quiet --universal --upgrade \
		--python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-package colorama; } \
		> constraints.new
	mv constraints.new constraints.txt

# The newest of everything, with which the whole suite must then pass.
.PHONY: upgrade
upgrade:
	rm -rf $(VENV) $(CLIENTS) $(MPICH)
	$(MAKE) PINS='-c constraints-ci.txt' $(VENV)/.dev $(CLIENTS)/.done $(MPICH)/.done
	{ sed '/^[^#]/,$$d' constraints-dev.txt; for venv in $(VENV) $(CLIENTS) $(MPICH); do \
		PYTHONPATH= $$venv/bin/pip freeze --local --exclude-editable; done | sed 's,+cpu,,' | LC_ALL=C sort -u; } > constraints-dev.new
	mv constraints-dev.new constraints-dev.txt

.venv-nvitop/.done:
	$(PYTHON) -m venv .venv-nvitop
	.venv-nvitop/bin/pip install --quiet nvitop==1.7.2
	touch $@

# blackbirds asks for an old numpy and for a simulator that the example does not use.
.venv-blackbirds/.done: constraints-ci.txt
	$(PYTHON) -m venv .venv-blackbirds
	.venv-blackbirds/bin/pip install --quiet -c constraints-ci.txt torch numpy networkx==3.6.1 \
		torch_geometric==2.8.1 normflows==1.7.3 mpi4py==4.1.2 mpich==5.0.2 tqdm tensorboard pyyaml
	.venv-blackbirds/bin/pip install --quiet --no-deps blackbirds==1.3
	touch $@

$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	touch $@

# pip compiles all of torch, of which a training imports a tenth: that is compiled here, once, as
# ranks that start together would each do it.
PIP_INSTALL = bin/pip install --quiet --no-compile $(PINS)
COMPILED = bin/python -c 'import torch._dynamo'

$(VENV)/.demo: $(VENV)/.pip $(SETUP)
	$(VENV)/$(PIP_INSTALL) -e '.[torch]'
	$(VENV)/$(COMPILED)
	touch $@

# What `make fast` needs: no torch.
$(VENV)/.fast: $(VENV)/.pip $(SETUP)
	$(VENV)/$(PIP_INSTALL) -e . --group fast
	touch $@

# What the site needs: no torch either.
$(VENV)/.docs: $(VENV)/.pip $(SETUP)
	$(VENV)/$(PIP_INSTALL) -e . --group docs
	touch $@

$(VENV)/.dev: $(VENV)/.pip $(SETUP)
	$(VENV)/$(PIP_INSTALL) -e '.[all]' --group dev
	$(VENV)/$(COMPILED)
	touch $@

# Lightning and accelerate live apart: hpckit's own python and a script's need not be the same.
$(CLIENTS)/.done: tests/clients/requirements.txt constraints-dev.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/$(PIP_INSTALL) -r tests/clients/requirements.txt
	$(CLIENTS)/$(COMPILED)
	touch $@

# mpi4py loads the MPI of its own environment: PyPI's MPICH here, the system's Open MPI elsewhere.
# All other packages are those of the first environment.
$(MPICH)/.done: $(VENV)/.dev
	$(PYTHON) -m venv $(MPICH)
	$(MPICH)/$(PIP_INSTALL) mpi4py mpich
	{ echo $(CURDIR); $(BIN)/python -c 'import site; print(site.getsitepackages()[0])'; } \
		> "$$($(MPICH)/bin/python -c 'import site; print(site.getsitepackages()[0])')/others.pth"
	touch $@

clean:
	rm -rf $(VENV) $(CLIENTS) $(MPICH) .venv-torchx .venv-nvitop .venv-blackbirds .venv-foreign .venv-gpu .pytest_cache .mypy_cache .ruff_cache .import_linter_cache runs
