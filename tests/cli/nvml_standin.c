/* A library with the functions of NVML that are asked about devices: what loads it is the real
   package, by the real way. SGPU_TEST_GPUS says what there is, NAME:BYTES for each GPU, with `;`
   between them; a number alone is the error that nvmlInit gives; a name `LOST` is a GPU that does not
   answer. SGPU_TEST_USERS says what uses them, GPU:PID:BYTES with `;` between, PID 0 for a process
   that is not told of, or @FILE with such a line, read each time; SGPU_TEST_CUDA is the driver's CUDA, such as 12040; SGPU_TEST_COMPUTE_MODE
   that of all GPUs, SGPU_TEST_CAPABILITY their compute capability, such as 90. SGPU_TEST_LOAD is what
   all of them do, UTILISATION:MILLIWATTS:DEGREES:THROTTLE:ECC; without it they do not tell.
   SGPU_TEST_XID is an error that the first one has once. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { char name[96]; unsigned long long bytes; char uuid[96]; unsigned index; } device_t;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, part; } process_t;
static device_t devices[64];
static unsigned count;

int nvmlInitWithFlags(unsigned flags) {
    const char *text = getenv("SGPU_TEST_GPUS");
    char *copy = strdup(text ? text : ""), *next = copy, *entry;
    count = 0;
    if (*copy >= '0' && *copy <= '9') return atoi(copy);
    while ((entry = strsep(&next, ";")) && *entry) {
        device_t *device = &devices[count];
        char *colon = strchr(entry, ':');
        *colon = 0;
        snprintf(device->name, sizeof device->name, "%s", entry);
        device->bytes = strtoull(colon + 1, 0, 10);
        snprintf(device->uuid, sizeof device->uuid, "%s-%08u-aaaa", strstr(entry, "MIG") ? "MIG" : "GPU", count);
        device->index = count++;
    }
    return 0;
}
/* The users of a GPU, those that are not told of left out; their bytes together in `used`. */
static unsigned users_of(device_t *d, process_t *to, unsigned long long *used) {
    const char *text = getenv("SGPU_TEST_USERS");
    char line[4096] = "";
    if (text && *text == '@') {
        FILE *file = fopen(text + 1, "r");
        if (file) { line[fread(line, 1, sizeof line - 1, file)] = 0; fclose(file); }
        text = line;
    }
    char *copy = strdup(text ? text : ""), *next = copy, *entry;
    unsigned found = 0;
    *used = 0;
    while ((entry = strsep(&next, ";")) && *entry) {
        unsigned gpu, pid;
        unsigned long long bytes;
        if (sscanf(entry, "%u:%u:%llu", &gpu, &pid, &bytes) != 3 || gpu != d->index) continue;
        *used += bytes;
        if (pid && to) { to[found].pid = pid; to[found].used = bytes; }
        found += pid != 0;
    }
    free(copy);
    return found;
}
int nvmlSystemGetDriverVersion(char *to, unsigned n) { snprintf(to, n, "550.54.15"); return 0; }
int nvmlSystemGetCudaDriverVersion(int *to) {
    const char *text = getenv("SGPU_TEST_CUDA");
    *to = atoi(text ? text : "12040");
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(device_t *d, int *major, int *minor) {
    const char *text = getenv("SGPU_TEST_CAPABILITY");
    if (!d || !text) return 3;
    *major = atoi(text) / 10;
    *minor = atoi(text) % 10;
    return 0;
}
int nvmlDeviceGetComputeMode(device_t *d, unsigned *to) {
    const char *text = getenv("SGPU_TEST_COMPUTE_MODE");
    *to = atoi(text ? text : "0");
    return d ? 0 : 2;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *n, process_t *to) {
    unsigned long long used;
    unsigned there = users_of(d, *n >= 1 ? to : 0, &used), room = *n;
    *n = there;
    return room < there ? 7 : 0;
}
static unsigned load_of(unsigned at) {
    const char *text = getenv("SGPU_TEST_LOAD");
    unsigned values[5] = {0};
    if (text) sscanf(text, "%u:%u:%u:%u:%u", values, values + 1, values + 2, values + 3, values + 4);
    return values[at];
}
static int tells(device_t *d) { return d && getenv("SGPU_TEST_LOAD") ? 0 : 3; }
int nvmlDeviceGetUtilizationRates(device_t *d, unsigned to[2]) {
    to[0] = load_of(0); to[1] = 1; return tells(d);
}
int nvmlDeviceGetPowerUsage(device_t *d, unsigned *to) { *to = load_of(1); return tells(d); }
int nvmlDeviceGetTemperature(device_t *d, int sensor, unsigned *to) {
    *to = load_of(2); return sensor ? 2 : tells(d);
}
int nvmlDeviceGetCurrentClocksEventReasons(device_t *d, unsigned long long *to) {
    *to = load_of(3); return tells(d);
}
int nvmlDeviceGetTotalEccErrors(device_t *d, int kind, int counter, unsigned long long *to) {
    *to = load_of(4); return kind == 1 && counter == 0 ? tells(d) : 2;
}
typedef struct { device_t *device; unsigned long long type, data; unsigned parts[2]; } event_t;
static int events;
int nvmlEventSetCreate(void **to) { *to = &events; return 0; }
int nvmlDeviceRegisterEvents(device_t *d, unsigned long long kinds, void *set) {
    return d && kinds == 8 && set == &events ? 0 : 2;
}
int nvmlEventSetWait_v2(void *set, event_t *to, unsigned milliseconds) {
    static int told;
    const char *text = getenv("SGPU_TEST_XID");
    if (set != &events || milliseconds || !text || told) return 10;
    told = 1;
    to->device = &devices[0]; to->type = 8; to->data = atoi(text);
    return 0;
}
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) {
    *n = 0;
    for (unsigned i = 0; i < count; i++) *n += devices[i].uuid[0] == 'G';
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device_t **d) {
    *d = &devices[i];
    if (i >= count) return 2;
    return strcmp(devices[i].name, "LOST") ? 0 : 15;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device_t **d) {
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(devices[i].uuid, uuid)) { *d = &devices[i]; return 0; }
    return 6;
}
int nvmlDeviceGetName(device_t *d, char *to, unsigned n) { snprintf(to, n, "%s", d->name); return 0; }
int nvmlDeviceGetUUID(device_t *d, char *to, unsigned n) { snprintf(to, n, "%s", d->uuid); return 0; }
int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *m) {
    users_of(d, 0, &m->used);
    m->total = d->bytes; m->free = d->bytes - m->used;
    return d->bytes ? 0 : 3;
}
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "Unknown Error"; }
