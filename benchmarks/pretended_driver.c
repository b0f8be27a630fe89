/* The functions of NVIDIA's driver that Triton calls, without a GPU: each succeeds at once and does nothing. */
#include "cuda.h"
#include <string.h>

static int place;
static char functions[4096];
static unsigned loaded;

CUresult cuGetErrorString(CUresult error, const char **text) { *text = "pretended"; return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) { *device = number; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448 : 132;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { *context = (CUcontext)&place; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = (CUcontext)&place; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 0; return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule *module, const void *image) { *module = (CUmodule)&place; return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = (CUfunction)&functions[loaded++ % sizeof functions];
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
  *(CUdeviceptr *)data = address;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *config) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  cuuint64_t *words = (cuuint64_t *)map;
  memset(map, 0, sizeof *map);
  words[0] = (cuuint64_t)address;
  for (cuuint32_t n = 0; n < rank; ++n) {
    words[1 + n] = sizes[n] ^ (cuuint64_t)box[n] << 32;
    words[6 + n] = n + 1 < rank ? strides[n] : type + 16 * swizzle + 256 * fill;
  }
  return CUDA_SUCCESS;
}

/* Called with each launch, where it is set: the function, blocks, threads, bytes of shared memory, stream, addresses of arguments. */
typedef void (*watcher)(void *, unsigned, unsigned, unsigned, void *, void **);
static watcher watching;
static unsigned long long launches;

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
  ++launches;
  if (watching)
    watching(function, config->gridDimX * config->gridDimY * config->gridDimZ, config->blockDimX, config->sharedMemBytes,
             config->hStream, arguments);
  return CUDA_SUCCESS;
}
unsigned long long pretended_launches(void) { return launches; }
void pretended_watch(watcher called) { watching = called; }
