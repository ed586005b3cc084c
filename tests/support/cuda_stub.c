/* A driver library whose GPU is the host's memory: what cuda-bindings is told to do happens, or is
   written down. For tests on machines without a driver; no call needs a GPU. */
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef unsigned long long P;

/* The last launch: grid, block, shared memory, stream; and where its arguments were. */
unsigned long long fake_launch[8];
unsigned char fake_arguments[64][8];
int fake_sizes[64], fake_count;
char fake_image[64], fake_name[64];
int fake_attribute[2];
size_t fake_room = 1 << 20, fake_used;

R cuInit(unsigned flags) { return 0; }
R cuDriverGetVersion(int *v) { *v = 13000; return 0; }
R cuDeviceGetCount(int *n) { *n = 2; return 0; }
R cuDeviceGet(int *d, int n) { *d = n; return 0; }
R cuDeviceGetName(char *s, int n, int d) { strncpy(s, d ? "Second" : "First", n); return 0; }
R cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 8 : a == 76 ? 6 : -1; return 0; }
R cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)(P)(0x100 + d); return 0; }
R cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
R cuCtxSetCurrent(void *c) { return (P)c >= 0x100 && (P)c < 0x102 ? 0 : 201; }
R cuMemGetInfo_v2(size_t *f, size_t *t) { *f = fake_room - fake_used; *t = fake_room; return 0; }
R cuMemAlloc_v2(P *p, size_t n) {
    if (fake_used + n > fake_room) return 2;
    size_t *m = aligned_alloc(256, (n + 511) / 256 * 256);
    m[0] = n; fake_used += n; *p = (P)m + 256;
    return 0;
}
R cuMemFree_v2(P p) { size_t *m = (size_t *)(p - 256); fake_used -= m[0]; free(m); return 0; }
R cuMemAllocHost_v2(void **p, size_t n) { *p = malloc(n); return 0; }
R cuMemFreeHost(void *p) { free(p); return 0; }
R cuMemcpyHtoDAsync_v2(P d, const void *s, size_t n, void *st) {
    memcpy((void *)d, s, n); return (P)st == 0x51 ? 0 : 400;
}
R cuMemcpyDtoHAsync_v2(void *d, P s, size_t n, void *st) {
    memcpy(d, (void *)s, n); return (P)st == 0x51 ? 0 : 400;
}
R cuMemsetD8Async(P d, unsigned char c, size_t n, void *st) {
    memset((void *)d, c, n); return (P)st == 0x51 ? 0 : 400;
}
R cuStreamCreate(void **s, unsigned flags) { *s = (void *)0x51; return flags == 1 ? 0 : 1; }
R cuStreamDestroy_v2(void *s) { return (P)s == 0x51 ? 0 : 400; }
R cuStreamSynchronize(void *s) { return (P)s == 0x51 ? 0 : 400; }
R cuModuleLoadData(void **m, const void *image) {
    memcpy(fake_image, image, 8); *m = (void *)0x77; return 0;
}
R cuModuleUnload(void *m) { return (P)m == 0x77 ? 0 : 400; }
R cuModuleGetFunction(void **f, void *m, const char *name) {
    strncpy(fake_name, name, 63); *f = (void *)0x88;
    return (P)m == 0x77 ? 0 : 400;
}
R cuFuncSetAttribute(void *f, int a, int v) {
    fake_attribute[0] = a; fake_attribute[1] = v;
    return (P)f == 0x88 ? 0 : 400;
}
R cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                 unsigned bz, unsigned shared, void *st, void **params, void **extra) {
    unsigned long long at[8] = {gx, gy, gz, bx, by, bz, shared, (P)st};
    memcpy(fake_launch, at, sizeof at);
    for (int i = 0; i < fake_count; i++) memcpy(fake_arguments[i], params[i], fake_sizes[i]);
    return (P)f == 0x88 && !extra ? 0 : 400;
}

/* How cuda-bindings finds all of them. */
#define F(name, symbol) if (!strcmp(s, #name)) { *p = (void *)symbol; return 0; }
R cuGetProcAddress_v2(const char *s, void **p, int version, unsigned long long flags, int *status) {
    if (status) *status = 0;
    F(cuGetProcAddress, cuGetProcAddress_v2) F(cuInit, cuInit)
    F(cuDriverGetVersion, cuDriverGetVersion) F(cuDeviceGetCount, cuDeviceGetCount)
    F(cuDeviceGet, cuDeviceGet) F(cuDeviceGetName, cuDeviceGetName)
    F(cuDeviceGetAttribute, cuDeviceGetAttribute)
    F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)
    F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)
    F(cuCtxSetCurrent, cuCtxSetCurrent) F(cuMemGetInfo, cuMemGetInfo_v2)
    F(cuMemAlloc, cuMemAlloc_v2) F(cuMemFree, cuMemFree_v2) F(cuMemAllocHost, cuMemAllocHost_v2)
    F(cuMemFreeHost, cuMemFreeHost) F(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)
    F(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2) F(cuMemsetD8Async, cuMemsetD8Async)
    F(cuStreamCreate, cuStreamCreate) F(cuStreamDestroy, cuStreamDestroy_v2)
    F(cuStreamSynchronize, cuStreamSynchronize) F(cuModuleLoadData, cuModuleLoadData)
    F(cuModuleUnload, cuModuleUnload) F(cuModuleGetFunction, cuModuleGetFunction)
    F(cuFuncSetAttribute, cuFuncSetAttribute) F(cuLaunchKernel, cuLaunchKernel)
    *p = 0;
    if (status) *status = 1;
    return 500;
}
