# SPDX-License-Identifier: MIT
# ctitan. Sources are found by wildcard: adding a file needs no edit here. `make help` lists the targets.
#
# Variants build side by side:  make SANITIZER=address|undefined|thread|fuzz ...   goes to build/<sanitizer>
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
CC       = gcc
PREFIX   = /usr/local
VERSION  = 0.1.0
SANITIZER =
VARIANT  := $(or $(SANITIZER),release)
B        := build/$(VARIANT)

WARNINGS := -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wwrite-strings -Wpointer-arith -Wshadow \
            -Wold-style-definition -Wundef
ifdef DEVELOPER
WARNINGS += -Werror
endif
CPPFLAGS = -D_GNU_SOURCE -DCTITAN_VERSION='"$(VERSION)"' -Isrc -I. -I$(B)/generated
# -ffp-contract=off: the same bits on every machine; fast kernels ask for fused multiply-add by intrinsics
CFLAGS   = -std=c11 -O2 -g -fPIC -fno-omit-frame-pointer -ffp-contract=off $(WARNINGS)
LDFLAGS  = -rdynamic
LDLIBS   = -lz -lyaml -ljansson -lpcre2-8 -lprotobuf-c -lpthread -ldl -lm
ifdef SANITIZER
ifeq ($(SANITIZER),address)
FLAGS_S  := -fsanitize=address,undefined -fno-sanitize-recover=undefined
else ifeq ($(SANITIZER),fuzz)
CC       := clang-14
FLAGS_S  := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
else
FLAGS_S  := -fsanitize=$(SANITIZER) -fno-sanitize-recover=undefined
endif
# warnings are the plain build's task: sanitizers bring false ones
CFLAGS   += -O1 $(FLAGS_S) -w
LDFLAGS  += $(FLAGS_S)
endif

FAST     := $(wildcard kernels/cpu/*_fast.c)
SOURCES  := $(filter-out src/main.c src/mpi/% src/cuda/% $(FAST),$(wildcard src/*/*.c src/*/*/*.c kernels/*.c kernels/cpu/*.c))
PROTOS   := $(wildcard third_party/proto/*.proto)
PB_C     := $(PROTOS:third_party/proto/%.proto=$(B)/generated/%.pb-c.c)
OBJECTS  := $(SOURCES:%.c=$(B)/%.o) $(PB_C:.c=.o)
ifeq ($(shell uname -m),x86_64)
OBJECTS  += $(FAST:%.c=$(B)/%.avx2.o) $(FAST:%.c=$(B)/%.avx512.o)
endif
MPICC    := $(shell command -v mpicc 2>/dev/null)
PLUGINS  := $(if $(and $(MPICC),$(wildcard src/mpi/*.c)),$(B)/libctitan_mpi.so)
# what needs nvcc and the toolkit's headers is built where they are; CUDA=no leaves it out
CUDA     ?= auto
NVCC     := $(if $(filter-out no,$(CUDA)),$(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc \
            /usr/local/cuda/bin/nvcc)))
CUDA_DIR := $(if $(NVCC),$(if $(wildcard $(NVCC:%/bin/nvcc=%)/include/cublasLt.h),$(NVCC:%/bin/nvcc=%)))
# cuDNN's headers come with the toolkit, with a package of its own, or in a Python environment
CUDNN_INCLUDE := $(if $(wildcard $(CUDA_DIR)/include/cudnn.h /usr/include/cudnn.h /usr/local/include/cudnn.h),,$(patsubst %/cudnn.h,%,$(firstword \
            $(wildcard $(VIRTUAL_ENV)/lib/python3*/site-packages/nvidia/cudnn/include/cudnn.h \
            /usr/local/lib/python3*/*-packages/nvidia/cudnn/include/cudnn.h /usr/lib/python3*/*-packages/nvidia/cudnn/include/cudnn.h))))
NCCL_H   := $(wildcard $(CUDA_DIR)/include/nccl.h /usr/include/nccl.h /usr/local/include/nccl.h)
# the CUDA plugin; PTX of compute_90 stays in, uncompressed: for newer GPUs, and for the simulator
KERNEL_FLAGS := -std=c++17 -O3 -lineinfo -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] \
            --no-compress -cudart shared -Xcompiler -fPIC,-fvisibility=hidden,-Wall -D_GNU_SOURCE -Isrc -I.
NO_CUDNN := $(if $(wildcard $(CUDNN_INCLUDE) $(CUDA_DIR)/include/cudnn.h /usr/include/cudnn.h /usr/local/include/cudnn.h),,src/cuda/cudnn_plan.c)
NO_NCCL  := $(if $(NCCL_H),,src/cuda/nccl%)
CUDA_O   := $(patsubst %.c,$(B)/%.o,$(filter-out $(NO_NCCL) $(NO_CUDNN),$(wildcard src/cuda/*.c))) $(patsubst %.cu,build/cuda/%.o,$(wildcard kernels/cuda/*.cu))
PLUGINS  += $(if $(CUDA_DIR),$(B)/libctitan_cuda.so,$(B)/without_cuda)
SIM      := $(if $(CUDA_DIR),$(addprefix $(B)/cudasim/,libcudart.so.13 libcuda.so.1 libnvidia-ml.so.1))
TESTS_C  := $(filter-out $(if $(CUDA_DIR),,tests/cudasim/% tests/cuda/%),$(wildcard tests/*/test_*.c))
TESTS    := $(TESTS_C:tests/%.c=$(B)/tests/%)
SUPPORT  := $(wildcard tests/support/*.c)
FUZZERS  := $(patsubst %.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES  := $(patsubst bench/%.c,$(B)/bench/%,$(wildcard bench/bench_*.c))


.PHONY: all test check lint bench fuzz docs install uninstall clean help format tests-built sanitize soak gpu-bundle
all: $(B)/ctitan $(PLUGINS) ## build the program and the plugins this machine can build

$(B)/ctitan: $(B)/src/main.o $(B)/libctitan.a
	$(CC) $(LDFLAGS) -o $@ $< -Wl,--whole-archive $(B)/libctitan.a -Wl,--no-whole-archive $(LDLIBS)
	@[ "$(VARIANT)" != release ] || ln -sf $(B)/ctitan ctitan
$(B)/libctitan.a: $(OBJECTS)
	@rm -f $@
	@ar rcs $@ $^
$(B)/libctitan_mpi.so: $(wildcard src/mpi/*.c) $(wildcard src/*/*.h)
	@mkdir -p $(@D)
	$(MPICC) $(CPPFLAGS) $(CFLAGS) -shared -o $@ $(wildcard src/mpi/*.c) $(if $(SANITIZER),$(FLAGS_S))

# What it needs of the program comes from the program. The toolkit's folder is only the last place where libraries are
# looked for: no RPATH, which would go before LD_LIBRARY_PATH.
$(B)/libctitan_cuda.so: $(CUDA_O)
	$(CC) -shared -o $@ $^ -L$(CUDA_DIR)/lib64 -Wl,--enable-new-dtags,-rpath,$(CUDA_DIR)/lib64 $(FLAGS_S) -lcudart -lcublasLt -lstdc++ -ldl -lm
$(B)/src/cuda/%.o: CFLAGS += -fvisibility=hidden
build/cuda/%.o: %.cu Makefile
	@mkdir -p $(@D)
	$(NVCC) $(KERNEL_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(B)/without_cuda:
	@mkdir -p $(@D)
	@echo "CUDA not found: building CPU only" | tee $@

# drawing initial values in batches pays only when the loops are vectorised
$(B)/src/base/rng.o: CFLAGS += -O3
# kernels/cpu/<family>_fast.c is compiled for each instruction set and called only where the CPU has it
$(B)/%.avx2.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -O3 -mavx2 -mfma -MMD -MP -c -o $@ $<
$(B)/%.avx512.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -O3 -mavx2 -mfma -mavx512f -mavx512dq -mavx512bw -mavx512vl -MMD -MP -c -o $@ $<
$(B)/%.o: %.c Makefile | $(PB_C)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(B)/generated/%.o: $(B)/generated/%.c
	$(CC) $(CPPFLAGS) $(filter-out -W%,$(CFLAGS)) -c -o $@ $<
$(B)/generated/%.pb-c.c: third_party/proto/%.proto
	@mkdir -p $(@D)
	protoc-c --c_out=$(@D) -Ithird_party/proto $<
.PRECIOUS: $(B)/generated/%.pb-c.c $(B)/%.o

# ---- tests: every tests/<folder>/test_*.c is one program, tests/*/test_*.sh and .py one script ----
$(B)/tests/%: $(B)/tests/%.o $(SUPPORT:%.c=$(B)/%.o) $(B)/libctitan.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--whole-archive $(B)/libctitan.a -Wl,--no-whole-archive -lcmocka $(LDLIBS)
# the list of kernel cases serves tests and bench
$(B)/tests/kernels/test_kernels $(B)/tests/kernels/test_gradients $(B)/tests/cuda/test_kernels $(B)/bench/bench_kernels $(B)/bench/bench_gpu_kernels: $(B)/tests/kernels/cases.o
# plugins that are wrong, each in its way
FAKES := $(foreach fake,good none abi version symbol,$(B)/tests/device/test_plugin_fakes/$(fake)/libctitan_cuda.so)
$(FAKES): tests/device/fake_plugin.c $(wildcard src/device/*.h) Makefile
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -DFAKE_$(notdir $(@D)) -shared -o $@ $<
$(B)/tests/device/test_plugin: $(FAKES)
# A fuzz target is explored by libFuzzer where SANITIZER=fuzz, else replay.c gives it the files of its corpus
$(B)/tests/fuzz/%: $(B)/tests/fuzz/%.o $(if $(filter fuzz,$(SANITIZER)),,$(B)/tests/fuzz/replay.o) $(B)/libctitan.a
	$(CC) $(LDFLAGS) $(if $(filter fuzz,$(SANITIZER)),-fsanitize=fuzzer) -o $@ $(filter %.o,$^) \
	    -Wl,--whole-archive $(B)/libctitan.a -Wl,--no-whole-archive $(LDLIBS)
PTX_OBJECTS := $(patsubst %.c,$(B)/%.o,$(wildcard tests/cudasim/ptx_*.c))
$(B)/tests/fuzz/fuzz_ptx: $(PTX_OBJECTS)
# ---- the simulator of CUDA: libraries for LD_LIBRARY_PATH, under the names and symbol versions of the real ones ----
SIM_OBJECTS := $(patsubst %.c,$(B)/%.o,$(filter-out %/driver.c %/nvml.c %/scenario.c tests/cudasim/test_% $(if $(NCCL_H),,%/nccl.c %/nccl_reduce.c %/group.c),$(wildcard tests/cudasim/*.c)))
$(B)/tests/cudasim/%.o: CPPFLAGS += -isystem $(CUDA_DIR)/include
$(B)/tests/cudasim/%.o: CFLAGS += -O3
# lanes become vectors of whatever the machine has that builds and runs the tests
$(B)/tests/cudasim/ptx_%.o: CFLAGS += -march=native
$(B)/cudasim/libcudart.so.13: $(SIM_OBJECTS) tests/cudasim/libcudart.map
	@mkdir -p $(@D)
	$(CC) $(if $(SANITIZER),$(FLAGS_S)) -shared -o $@ $(SIM_OBJECTS) -Wl,-soname,$(@F) -Wl,-z,nodelete \
	    -Wl,--version-script=tests/cudasim/libcudart.map -lpthread -lm
	@for name in libcublasLt.so.13 libnccl.so.2; do ln -sf $(@F) $(@D)/$$name; done
# tests of the simulator: test_<name>.c with the kernels of <name>.cu, if there are any
NVCCFLAGS := -O2 -lineinfo -std=c++17 -gencode arch=compute_90,code=compute_90 --no-compress -cudart shared -Xcompiler -fPIC
$(B)/%.cu.o: %.cu Makefile
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -MD -MF $(@:.o=.d) -c -o $@ $<
CUDA_UNITS := $(patsubst tests/cudasim/%.cu,%,$(wildcard tests/cudasim/*.cu))
$(CUDA_UNITS:%=$(B)/tests/cudasim/test_%): $(B)/tests/cudasim/test_%: $(B)/tests/cudasim/%.cu.o
$(patsubst %.c,$(B)/%,$(filter tests/cudasim/%,$(TESTS_C))): $(B)/tests/cudasim/%: $(B)/tests/cudasim/%.o $(B)/tests/cudasim/scenario.o $(SIM)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -lcmocka -L$(B)/cudasim -l:libcudart.so.13 $(if $(filter %.cu.o,$^),-lstdc++) -lpthread -ldl -lm \
	    -Wl,--enable-new-dtags,-rpath,'$$ORIGIN/../../cudasim'
$(B)/cudasim/libcuda.so.1: $(B)/tests/cudasim/driver.o
	@mkdir -p $(@D)
	$(CC) $(if $(SANITIZER),$(FLAGS_S)) -shared -o $@ $^ -Wl,-soname,$(@F)
$(B)/cudasim/libnvidia-ml.so.1: $(B)/tests/cudasim/nvml.o
	@mkdir -p $(@D)
	$(CC) $(if $(SANITIZER),$(FLAGS_S)) -shared -o $@ $^ -Wl,-soname,$(@F)
# the plugin's host code, in tests without the plugin: tests/cuda/test_<name> with what it names here
$(B)/src/cuda/%.o $(B)/tests/cuda/%.o: CPPFLAGS += $(addprefix -isystem ,$(wildcard $(CUDA_DIR)/include) $(CUDNN_INCLUDE))
CUDNN_OBJECTS := $(patsubst src/%.c,$(B)/src/%.o,$(filter-out $(NO_CUDNN),$(addprefix src/cuda/,library.c attention_graph.c cudnn_plan.c cudnn.c)))
$(B)/tests/cuda/test_attention_choice: $(B)/src/cuda/attention.o
$(B)/tests/cuda/test_attention_graph: $(B)/src/cuda/attention_graph.o
$(B)/tests/cuda/test_cudnn_plans $(B)/tests/cuda/test_cudnn_numbers: $(CUDNN_OBJECTS)
$(B)/tests/cuda/test_nvml: $(B)/src/cuda/nvml.o $(B)/src/cuda/library.o | $(B)/cudasim/libnvidia-ml.so.1
$(B)/tests/cuda/test_library: $(B)/src/cuda/library.o
$(B)/tests/cuda/test_gemm: $(patsubst %,$(B)/src/cuda/%.o,gemm device attention nvml) $(CUDNN_OBJECTS)
$(B)/tests/cuda/test_gemm: LDLIBS += -L$(CUDA_DIR)/lib64 -Wl,--enable-new-dtags,-rpath,$(CUDA_DIR)/lib64 -lcudart -lcublasLt
$(B)/tests/cuda/test_library $(B)/tests/cuda/test_cudnn_plans: | $(B)/cudasim/libcuda.so.1
$(B)/tests/cuda/test_cudnn_%: LDLIBS += -L$(CUDA_DIR)/lib64 -Wl,--enable-new-dtags,-rpath,$(CUDA_DIR)/lib64 -lcudart
$(B)/bench/%: $(B)/bench/%.o $(B)/libctitan.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--whole-archive $(B)/libctitan.a -Wl,--no-whole-archive $(LDLIBS)
tests-built: $(TESTS) $(FUZZERS) $(SIM)
test: all tests-built ## all tests that need nothing but the installer's packages (under 10 minutes)
	tools/run_tests --build $(B) tests
lint: all ## layers, sizes, headers alone, shell, stale docs
	tools/lint
sanitize: ## address+undefined over the tests, thread over what is concurrent
	tools/sanitize
fuzz: ## TIME=60 seconds of each fuzzer
	tools/fuzz $(or $(TIME),60)
check: ## test + lint + sanitizers + fuzzing + long tests + the tests against PyPI peers
	tools/check
soak: all ## long runs by hand
	tools/soak
bench: all $(BENCHES) ## side-by-side measurements as JSON
	tools/bench
gpu-bundle: all tests-built $(BENCHES) ## build/gpu-bundle: what a bare machine with a GPU needs for tools/gpu_check.sh
	tools/gpu_bundle $(B) build/gpu-bundle
docs: all ## pages generated from the tables
	tools/gen_docs
format: ## clang-format on everything
	clang-format-14 -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
install: all ## to PREFIX (/usr/local)
	tools/install_to "$(DESTDIR)$(PREFIX)" "$(B)"
uninstall:
	tools/install_to --remove "$(DESTDIR)$(PREFIX)" "$(B)"
clean:
	rm -rf build ctitan
help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

-include $(OBJECTS:.o=.d) $(CUDA_O:.o=.d) $(B)/src/main.d $(TESTS:=.d) $(FUZZERS:=.d) $(BENCHES:=.d) $(B)/tests/kernels/cases.d $(SUPPORT:%.c=$(B)/%.d) \
         $(wildcard $(B)/tests/cudasim/*.d)
