# SmolLM3 from Transformers to ONNX to a TensorRT engine, stage by stage.
#
#   make export build validate                 the default model, on any machine
#   make export build validate MODEL=path/to/checkpoint
#   make help                                  every command

MODEL    ?= smollm3-tiny
OUT      ?= artifacts/out
# From the command line only: some systems have a NAME of their own in the environment.
NAME      =
REVISION  =
PYTHON   ?= python3
# More flags for one stage: make build BUILD_ARGS="--max-context 8192 --compute-capability 8.9"
EXPORT_ARGS   ?=
SURGERY_ARGS  ?=
BUILD_ARGS    ?=
VALIDATE_ARGS ?=
DEBUG_ARGS    ?=
RUNTIME_ARGS  ?=
TEST_ARGS     ?=
TINY_ARGS     ?=
# What validate compares inside the model (named tensors of every layer, if not given), and what debug cuts out of it.
LAYERS ?=
LAYER  ?=
TENSOR ?=
PROMPT ?= What is the capital of France?

PY     := .venv/bin/python
# Two processes, and one thread in each: more would only wait for each other. What a file's tests share is made once, and
# bytecode is kept, since many tests start a process of their own.
PYTEST  = env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(TEST_ARGS)
# With an NVIDIA GPU TensorRT itself is installed too; without one TensorRT-RTX, which builds ahead of time, is enough.
EXTRAS := $(shell nvidia-smi -L >/dev/null 2>&1 && echo dev,gpu || echo dev)
READY  := .venv/.ready-$(EXTRAS)
# What a person gives reaches the commands through the environment, so that no quote or space in it is the shell's.
export MODEL OUT NAME REVISION LAYERS LAYER TENSOR PROMPT
ifeq ($(strip $(OUT)),)
$(error OUT is empty: leave it out, or name the folder that models go to)
endif
FOLDER = "$$OUT/$${NAME:-$$($(PY) -c 'import sys; from artifacts.layout import short_name; print(short_name(sys.argv[1]))' "$$MODEL")}"

# Folders and targets share names; every target is a command. Stages run one after another: the next needs the last.
.PHONY: help setup doctor export surgery build validate debug generate chat serve tiny test check bench bench-runtime clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help:
	@echo 'make setup      .venv with everything, pinned in constraints.txt (each command below does this first)'
	@echo 'make doctor     what this machine has and what that allows'
	@echo 'make export     checkpoint -> ONNX          MODEL=$(MODEL) NAME= OUT=$(OUT) REVISION= EXPORT_ARGS='
	@echo 'make surgery    ONNX -> fused ONNX          SURGERY_ARGS="--capacity 4096"'
	@echo 'make build      fused ONNX -> TensorRT plan BUILD_ARGS="--max-context 4096"'
	@echo 'make validate   every way to run it against PyTorch -> report and verdict'
	@echo '                LAYERS=all compares every tensor inside the model, LAYERS=3,7 two layers'
	@echo '                VALIDATE_ARGS="--text FILE" measures the perplexity of a text'
	@echo 'make debug      a folder for Polygraphy around the first wrong tensor     LAYER=7 TENSOR='
	@echo 'make generate | chat | serve     text from the graph     PROMPT= RUNTIME_ARGS="--port 8000"'
	@echo 'make test       the quick tests             TEST_ARGS="-m slow"'
	@echo 'make check      ruff, mypy --strict and the tests'
	@echo 'make bench      seconds and memory of every stage at full size -> docs/benchmarks.md'
	@echo 'make bench-runtime   tokens a second, MODEL= a real checkpoint -> docs/benchmarks.md'
	@echo 'make tiny       trains the default model again, forty minutes; goes on where it was stopped     TINY_ARGS='
	@echo 'make clean      removes the models in $(OUT) (the checkpoints that it was made from stay)'

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $$($(PYTHON) --version) is too old"; echo "  expected: Python 3.11 or newer"; \
	    echo "  do:       make PYTHON=python3.12 ..."; exit 2; } >&2
	@echo 'setting up .venv' >&2
	@$(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt ".[$(EXTRAS)]" >&2
	@touch $@

doctor: $(READY)
	@$(PY) -m artifacts doctor --out "$$OUT"

# What these write to stdout is theirs alone: the stages before them tell theirs on stderr.
generate chat serve debug: ASIDE = >&2

export: $(READY)
	@$(PY) -m export --model "$$MODEL" --out "$$OUT" $(if $(NAME),--name "$$NAME") $(if $(REVISION),--revision "$$REVISION") $(EXPORT_ARGS) $(ASIDE)

surgery: export
	@$(PY) -m surgery $(FOLDER) $(SURGERY_ARGS) $(ASIDE)

build: surgery
	@$(PY) -m build $(FOLDER) $(BUILD_ARGS)

validate: surgery
	@$(PY) -m validate $(FOLDER) $(if $(LAYERS),--layers "$$LAYERS") $(VALIDATE_ARGS)

debug: surgery
	@$(PY) -m validate.debugging $(FOLDER) $(if $(LAYER),--layer "$$LAYER") $(if $(TENSOR),--tensor "$$TENSOR") $(DEBUG_ARGS)

generate: surgery
	@$(PY) -m runtime generate $(FOLDER) "$$PROMPT" $(RUNTIME_ARGS)

chat serve: surgery
	@$(PY) -m runtime $@ $(FOLDER) $(RUNTIME_ARGS)

test: $(READY)
	@$(PYTEST)

check: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PYTEST)

bench: $(READY)
	@$(PY) -m artifacts bench --out "$$OUT"

bench-runtime: surgery
	@$(PY) -m runtime bench $(FOLDER) --context 2048 --against transformers onnxruntime-genai --streams 8 --write docs/benchmarks.md $(RUNTIME_ARGS)

tiny: $(READY)
	@$(PY) -m artifacts.checkpoints $(TINY_ARGS)

# Only folders of models go: OUT may hold other things.
clean:
	@for model in "$$OUT"/*/; do \
	  if [ -e "$${model}onnx/export.manifest.json" ]; then rm -rf -- "$$model" && echo "removed $$model"; fi; done
