/* SPDX-License-Identifier: MIT */
/*
 * libcudart: what nvcc's stubs call. A fat binary registers itself when the plugin is loaded; its PTX is parsed when
 * one of its kernels or variables is first asked for. A launch packs its arguments as the kernel's PTX declares them.
 */
#include "runtime.h"
#include "stream.h"

#include <cuda_runtime_api.h>
#include <fatbinary_section.h>
#include <stdlib.h>
#include <string.h>

enum { FAT_MAGIC = 0xBA55ED50, KIND_PTX = 1, PTX_ARCH = 90, STATIC_SHARED = 48 << 10, OPTIN_SHARED = 227 << 10 };

/* as they lie in the file; what else an entry's header holds is not needed */
struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};
struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t unused[3], arch;
};

struct module {
    const uint8_t *fat;
    struct ptx_module *ptx; /* NULL: not parsed yet */
    uint64_t *variables;    /* where they lie */
};
struct kernel {
    struct module *module;
    const void *stub;
    const char *name;
    struct ptx_function *function; /* NULL: not looked for yet */
    size_t dynamic_limit;
    struct kernel *next;
};
struct variable {
    struct module *module;
    const void *host;
    const char *name;
    struct variable *next;
};
struct configuration {
    dim3 grid, block;
    size_t dynamic_shared;
    struct CUstream_st *stream;
};

static struct kernel *kernels;
static struct variable *variables;
static _Thread_local struct configuration configurations[8];
static _Thread_local int n_configurations;

/* declared by the toolkit's headers for C++ alone */
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *stub, char *device_function, const char *name, int thread_limit,
                            uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp_size);
void __cudaRegisterVar(void **handle, char *host, char *device_address, const char *name, int ext, size_t bytes,
                       int is_constant, int is_global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device_address, const char *name, int ext, size_t bytes,
                              int is_constant, int is_global);
char __cudaInitModule(void **handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_shared, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *dynamic_shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t dynamic_shared,
                               cudaStream_t stream);

/* ---- modules ---- */

void **__cudaRegisterFatBinary(void *wrapper)
{
    SIM_CALL;
    const __fatBinC_Wrapper_t *w = wrapper;
    if (w->magic != FATBINC_MAGIC)
        sim_die("a fat binary has the magic number %x, not %x", (unsigned)w->magic, FATBINC_MAGIC);
    if (w->version != FATBINC_VERSION) sim_die("relocatable device code is not simulated: compile without -rdc=true");
    struct module *m = sim_alloc(sizeof *m);
    m->fat = (const uint8_t *)w->data;
    return (void **)m;
}

void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }

char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

/* The PTX for compute_90; other targets' differs in what nvcc wrote out by hand, such as bf16. */
static struct ptx_module *parse(const uint8_t *fat)
{
    struct fat_header header;
    memcpy(&header, fat, sizeof header);
    if (header.magic != FAT_MAGIC) sim_die("a fat binary's data begin with %x, not %x", header.magic, FAT_MAGIC);
    const uint8_t *at = fat + header.header_bytes, *end = at + header.bytes;
    struct fat_entry entry;
    for (; at < end; at += entry.header_bytes + entry.bytes) {
        memcpy(&entry, at, sizeof entry);
        if (entry.kind != KIND_PTX || entry.arch != PTX_ARCH) continue;
        const char *text = (const char *)at + entry.header_bytes;
        if (!memmem(text, entry.bytes, ".version", 8))
            sim_die("the PTX in a fat binary is compressed: build with nvcc --no-compress");
        return ptx_module_parse(text, entry.bytes);
    }
    sim_die("a fat binary holds no PTX for compute_%d: build with -gencode arch=compute_%d,code=compute_%d", PTX_ARCH,
            PTX_ARCH, PTX_ARCH);
}

static void place_variables(struct module *m)
{
    struct ptx_module *ptx = m->ptx;
    m->variables = sim_alloc((size_t)ptx_module_variables(ptx) * sizeof *m->variables);
    for (int i = 0; i < ptx_module_variables(ptx); i++) {
        uint64_t bytes, align;
        const void *initial;
        const char *name = ptx_module_variable(ptx, i, &bytes, &align, &initial);
        uint64_t address = sim_device_allocate(bytes);
        if (!address || align > 256)
            sim_die("the device variable %s of %llu bytes, aligned to %llu, has no place", name,
                    (unsigned long long)bytes, (unsigned long long)align);
        sim_device_keep(address);
        ptx_module_place(ptx, i, address);
        m->variables[i] = address;
        if (!sim_options.has_data) continue;
        if (initial)
            memcpy(sim_alias + (address - SIM_BASE), initial, bytes);
        else
            memset(sim_alias + (address - SIM_BASE), 0, bytes);
        memset(sim_shadow + (address - SIM_BASE), SIM_INITIALISED, bytes);
    }
}

static struct ptx_module *ptx_of(struct module *m)
{
    if (!m->ptx) {
        m->ptx = parse(m->fat);
        place_variables(m);
    }
    return m->ptx;
}

void __cudaUnregisterFatBinary(void **handle)
{
    SIM_CALL;
    struct module *m = (struct module *)handle;
    for (struct kernel **at = &kernels; *at;) {
        struct kernel *k = *at;
        if (k->module != m) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        sim_bury(k);
    }
    for (struct variable **at = &variables; *at;) {
        struct variable *v = *at;
        if (v->module != m) {
            at = &v->next;
            continue;
        }
        *at = v->next;
        free(v);
    }
    sim_bury(m);
    /* the module itself stays: an operation that is still to run may need it */
}

void __cudaRegisterFunction(void **handle, const char *stub, char *device_function, const char *name, int thread_limit,
                            uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp_size)
{
    SIM_CALL;
    (void)device_function, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp_size;
    struct kernel *k = sim_alloc(sizeof *k);
    *k = (struct kernel){.module = (struct module *)handle, .stub = stub, .name = name, .next = kernels};
    kernels = k;
}

void __cudaRegisterVar(void **handle, char *host, char *device_address, const char *name, int ext, size_t bytes,
                       int is_constant, int is_global)
{
    SIM_CALL;
    (void)device_address, (void)ext, (void)bytes, (void)is_constant, (void)is_global;
    struct variable *v = sim_alloc(sizeof *v);
    *v = (struct variable){.module = (struct module *)handle, .host = host, .name = name, .next = variables};
    variables = v;
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device_address, const char *name, int ext, size_t bytes,
                              int is_constant, int is_global)
{
    (void)handle, (void)host, (void)device_address, (void)ext, (void)bytes, (void)is_constant, (void)is_global;
    sim_die("the variable %s: __managed__ is not simulated", name);
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol)
{
    SIM_CALL;
    for (struct variable *v = variables; v; v = v->next) {
        if (v->host != symbol) continue;
        struct ptx_module *ptx = ptx_of(v->module);
        for (int i = 0; i < ptx_module_variables(ptx); i++) {
            uint64_t bytes, align;
            const void *initial;
            if (!strcmp(ptx_module_variable(ptx, i, &bytes, &align, &initial), v->name)) {
                *address = (void *)(uintptr_t)v->module->variables[i];
                return runtime_done(cudaSuccess);
            }
        }
    }
    return runtime_done(cudaErrorInvalidSymbol);
}

/* ---- kernels ---- */

static struct kernel *kernel_of(const void *stub)
{
    struct kernel *k = kernels;
    while (k && k->stub != stub) k = k->next;
    if (k && !k->function) {
        k->function = ptx_module_function(ptx_of(k->module), k->name);
        if (!k->function) sim_die("the kernel %s is not in the PTX of its fat binary", k->name);
    }
    return k;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_shared, struct CUstream_st *stream)
{
    if (n_configurations == sizeof configurations / sizeof *configurations) sim_die("kernel launches nest too deeply");
    configurations[n_configurations++] = (struct configuration){grid, block, dynamic_shared, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *dynamic_shared, void *stream)
{
    if (!n_configurations) return cudaErrorInvalidConfiguration;
    struct configuration c = configurations[--n_configurations];
    *grid = c.grid;
    *block = c.block;
    *dynamic_shared = c.dynamic_shared;
    memcpy(stream, &c.stream, sizeof c.stream);
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub)
{
    SIM_CALL;
    *kernel = (cudaKernel_t)kernel_of(stub);
    return runtime_done(*kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

/* ---- launches ---- */

struct launch {
    struct sim_op op;
    struct ptx_function *function;
    struct sim_dim grid, block;
    size_t dynamic_shared;
    uint64_t seed;
    _Alignas(16) uint8_t parameters[];
};

static void run_launch(struct sim_op *op, struct sim_access *access)
{
    struct launch *l = (struct launch *)op;
    if (!sim_options.has_data) return;
    if (sim_must_fail("kernel")) {
        runtime_device_failed(cudaErrorIllegalAddress);
        return;
    }
    struct ptx_launch launch = {.function = l->function,
                                .grid = l->grid,
                                .block = l->block,
                                .dynamic_shared = l->dynamic_shared,
                                .parameters = l->parameters,
                                .seed = l->seed};
    struct ptx_counters counters = {0};
    ptx_run(&launch, access, &counters);
    sim_counters.kernel_threads += counters.threads;
    sim_counters.warp_instructions += counters.warp_instructions;
}

static bool is_shape(dim3 grid, dim3 block)
{
    return grid.x && grid.x <= 0x7fffffff && grid.y && grid.y <= 65535 && grid.z && grid.z <= 65535 && block.x &&
           block.y && block.z && block.x <= 1024 && block.y <= 1024 && block.z <= 64 &&
           block.x * block.y * block.z <= 1024;
}

/* Packs the arguments, and notes those that look like addresses. */
static struct launch *pack(struct kernel *k, void **arguments)
{
    int n = ptx_function_parameters(k->function);
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        size_t offset, size;
        ptx_function_parameter(k->function, i, &offset, &size);
        bytes = offset + size;
    }
    struct launch *l = sim_alloc(sizeof *l + bytes);
    l->op = (struct sim_op){.name = k->name, .bytes = sizeof *l + bytes, .run = run_launch};
    for (int i = 0; i < n; i++) {
        size_t offset, size;
        ptx_function_parameter(k->function, i, &offset, &size);
        memcpy(l->parameters + offset, arguments[i], size);
    }
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        uint64_t value;
        memcpy(&value, l->parameters + at, 8);
        if (sim_is_device(value) && l->op.n_uses < SIM_USES)
            l->op.uses[l->op.n_uses++] = (const void *)(uintptr_t)value;
    }
    return l;
}

static int launch(const char *function, struct kernel *k, dim3 grid, dim3 block, void **arguments,
                  size_t dynamic_shared, cudaStream_t stream)
{
    static uint64_t launches;
    struct sim_stream *s = runtime_stream(function, stream);
    if (!k) return cudaErrorInvalidDeviceFunction;
    if (s != stream_default() && stream_device(s) != runtime_device()) {
        sim_report("the launch of %s: its stream belongs to device %d, and device %d is the thread's current one",
                   k->name, stream_device(s), runtime_device());
        return cudaErrorInvalidResourceHandle;
    }
    if (sim_must_fail("launch")) return cudaErrorLaunchOutOfResources;
    size_t static_shared = ptx_function_static_shared(k->function);
    size_t limit = k->dynamic_limit ? k->dynamic_limit : STATIC_SHARED - static_shared;
    if (!is_shape(grid, block)) {
        sim_report("the launch of %s: grid %u x %u x %u of blocks %u x %u x %u is not a shape a device can run",
                   k->name, grid.x, grid.y, grid.z, block.x, block.y, block.z);
        return cudaErrorInvalidConfiguration;
    }
    if (dynamic_shared > limit) {
        sim_report(
            "the launch of %s asks for %zu bytes of dynamic shared memory beside %zu static ones; %zu are allowed "
            "(cudaFuncSetAttribute raises that)",
            k->name, dynamic_shared, static_shared, limit);
        return cudaErrorInvalidValue;
    }
    sim_counters.launches++;
    struct launch *l = pack(k, arguments);
    l->function = k->function;
    l->grid = (struct sim_dim){grid.x, grid.y, grid.z};
    l->block = (struct sim_dim){block.x, block.y, block.z};
    l->dynamic_shared = dynamic_shared;
    l->seed = sim_options.seed ? sim_options.seed + ++launches : 0;
    runtime_push(s, &l->op);
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t dynamic_shared,
                               cudaStream_t stream)
{
    SIM_CALL;
    return runtime_done(
        launch("a kernel's launch", (struct kernel *)kernel, grid, block, arguments, dynamic_shared, stream));
}

cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **arguments, size_t dynamic_shared,
                             cudaStream_t stream)
{
    SIM_CALL;
    return runtime_done(launch(__func__, kernel_of(stub), grid, block, arguments, dynamic_shared, stream));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *stub, void **arguments)
{
    SIM_CALL;
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id != cudaLaunchAttributeIgnore && c->attrs[i].id != cudaLaunchAttributePriority)
            sim_die("%s: launch attribute %d is not simulated", __func__, (int)c->attrs[i].id);
    return runtime_done(
        launch(__func__, kernel_of(stub), c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes, c->stream));
}

/* ---- what a kernel needs ---- */

cudaError_t cudaFuncSetAttribute(const void *stub, enum cudaFuncAttribute attribute, int value)
{
    SIM_CALL;
    struct kernel *k = kernel_of(stub);
    if (!k) return runtime_done(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return runtime_done(cudaSuccess);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        sim_die("%s: attribute %d is not simulated", __func__, (int)attribute);
    if (value < 0 || (size_t)value + ptx_function_static_shared(k->function) > OPTIN_SHARED)
        return runtime_done(cudaErrorInvalidValue);
    k->dynamic_limit = (size_t)value;
    return runtime_done(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *stub)
{
    SIM_CALL;
    struct kernel *k = kernel_of(stub);
    if (!k) return runtime_done(cudaErrorInvalidDeviceFunction);
    size_t static_shared = ptx_function_static_shared(k->function);
    *attributes = (struct cudaFuncAttributes){
        .sharedSizeBytes = static_shared,
        .maxThreadsPerBlock = 1024,
        .numRegs = 32,
        .ptxVersion = PTX_ARCH,
        .binaryVersion = PTX_ARCH,
        .maxDynamicSharedSizeBytes = (int)(k->dynamic_limit ? k->dynamic_limit : STATIC_SHARED - static_shared),
    };
    return runtime_done(cudaSuccess);
}

static int occupancy(int *blocks, const void *stub, int threads, size_t dynamic_shared)
{
    struct kernel *k = kernel_of(stub);
    if (!k) return cudaErrorInvalidDeviceFunction;
    if (threads <= 0 || threads > 1024) return cudaErrorInvalidValue;
    size_t shared =
        ptx_function_static_shared(k->function) + dynamic_shared + 1024; /* the system takes 1 KiB a block */
    int by_threads = 2048 / ((threads + 31) / 32 * 32), by_shared = (int)((OPTIN_SHARED + 1024) / shared);
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    *blocks = *blocks < 32 ? *blocks : 32;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *stub, int threads,
                                                          size_t dynamic_shared)
{
    SIM_CALL;
    return runtime_done(occupancy(blocks, stub, threads, dynamic_shared));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *stub, int threads,
                                                                   size_t dynamic_shared, unsigned flags)
{
    SIM_CALL;
    (void)flags;
    return runtime_done(occupancy(blocks, stub, threads, dynamic_shared));
}
