/* A test double of libnvidia-ml.so.1 with NVIDIA's ABI.
 *
 * It is compiled against NVIDIA's own nvml.h (nvidia-nvml-dev on PyPI), so that a wrong prototype or
 * layout is a compile error. What it answers is read from the file named by NVML_MACHINE, one fact a
 * line; what that file does not have is answered with Not Supported.
 *
 *   system KEY VALUE              driver, nvml, cuda, gpus, init (nvmlReturn_t of nvmlInit),
 *                                 fabric_version, platform_version (newest layout it knows)
 *   gpu GPUS KEY VALUE            GPUS: 3, 0-7, 0,2 or *; `system gpus` comes first. Keys are in the calls
 *                                 below; `endless` has NVLinks of any number
 *   link GPUS LINKS KEY VALUE     state (field 165), enabled (nvmlDeviceGetNvLinkState), speed, version,
 *                                 kind, far (PCI address)
 *   pair GPUS GPUS KEY VALUE      read, nvlink, level; for both directions
 *   way GPUS GPUS KEY VALUE       the same for one direction
 *   slice GPUS PLACES KEY VALUE   MIG slices: uuid, name, gpu_instance, compute_instance
 *   fail CALL GPUS CODE           nvmlReturn_t of a call about these GPUs; - is a call about none
 *   hang CALL GPUS                the call never returns
 *   missing CALL                  a function that the driver lacks: left out when this is compiled
 *
 * Each call is written to the file named by NVML_CALLS, one line each.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_GPUS = 16, MOST_PLACES = 8, MOST_FACTS = 16384, NOBODY = -1, WHOLE = -1 };

struct nvmlDevice_st {
    int gpu;
    int place; /* of a MIG slice, WHOLE for the GPU itself */
};

struct fact {
    int gpu;
    char key[96];
    char value[128];
};

static struct nvmlDevice_st devices[MOST_GPUS][MOST_PLACES + 1];
static struct fact facts[MOST_FACTS];
static int known, gpus, running;

/* Facts */

static const char *fact(int gpu, const char *format, ...)
{
    char key[96];
    va_list rest;
    va_start(rest, format);
    vsnprintf(key, sizeof key, format, rest);
    va_end(rest);
    for (int i = known - 1; i >= 0; i--)
        if (facts[i].gpu == gpu && !strcmp(facts[i].key, key))
            return facts[i].value;
    return NULL;
}

static const char *own(nvmlDevice_t device, const char *key)
{
    return device->place == WHOLE ? fact(device->gpu, "%s", key)
                                  : fact(device->gpu, "slice.%d.%s", device->place, key);
}

static void keep(int gpu, const char *key, const char *value)
{
    if (known == MOST_FACTS)
        abort();
    facts[known].gpu = gpu;
    snprintf(facts[known].key, sizeof facts[known].key, "%s", key);
    snprintf(facts[known].value, sizeof facts[known].value, "%s", value);
    known++;
}

static int chosen(const char *list, int number)
{
    if (!strcmp(list, "*"))
        return 1;
    while (*list) {
        char *end;
        long from = strtol(list, &end, 10), to = from;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        if (from <= number && number <= to)
            return 1;
        list = *end == ',' ? end + 1 : end;
    }
    return 0;
}

/* One line of the form KIND GPUS INNER KEY VALUE, for every GPU and every inner number. */
static void keep_inner(const char *kind, const char *outer, const char *inner, const char *key, const char *value,
                       int most)
{
    char name[96];
    for (int gpu = 0; gpu < gpus; gpu++)
        for (int number = 0; number < most; number++)
            if (chosen(outer, gpu) && chosen(inner, number)) {
                snprintf(name, sizeof name, "%s.%d.%s", kind, number, key);
                keep(gpu, name, value);
            }
}

static void keep_call(const char *kind, const char *call, const char *list, const char *value)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", kind, call);
    if (!strcmp(list, "-"))
        keep(NOBODY, name, value);
    for (int gpu = 0; gpu < gpus; gpu++)
        if (chosen(list, gpu))
            keep(gpu, name, value);
}

static void read_line(char *line)
{
    char kind[16] = "", a[64] = "", b[64] = "", c[64] = "";
    int after_a = 0, after_b = 0, after_c = 0;
    line[strcspn(line, "#\n")] = 0;
    for (size_t end = strlen(line); end && line[end - 1] == ' ';)
        line[--end] = 0;
    if (sscanf(line, "%15s %63s %n%63s %n%63s %n", kind, a, &after_a, b, &after_b, c, &after_c) < 2)
        return;
    if (!strcmp(kind, "system")) {
        keep(NOBODY, a, line + after_a);
        gpus = !strcmp(a, "gpus") ? atoi(line + after_a) : gpus;
    } else if (!strcmp(kind, "gpu")) {
        for (int gpu = 0; gpu < gpus; gpu++)
            if (chosen(a, gpu))
                keep(gpu, b, line + after_b);
    } else if (!strcmp(kind, "link")) {
        keep_inner("link", a, b, c, line + after_c, 64);
    } else if (!strcmp(kind, "slice")) {
        keep_inner("slice", a, b, c, line + after_c, MOST_PLACES);
    } else if (!strcmp(kind, "pair") || !strcmp(kind, "way")) {
        keep_inner("pair", a, b, c, line + after_c, gpus);
        if (*kind == 'p')
            keep_inner("pair", b, a, c, line + after_c, gpus);
    } else if (!strcmp(kind, "fail") || !strcmp(kind, "hang")) {
        keep_call(kind, a, b, c);
    }
}

static nvmlReturn_t load(void)
{
    const char *path = getenv("NVML_MACHINE"), *init;
    char line[256];
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    known = gpus = 0;
    while (fgets(line, sizeof line, file))
        read_line(line);
    fclose(file);
    for (int gpu = 0; gpu < MOST_GPUS; gpu++)
        for (int place = 0; place <= MOST_PLACES; place++)
            devices[gpu][place] = (struct nvmlDevice_st){gpu, place - 1};
    init = fact(NOBODY, "init");
    return init ? (nvmlReturn_t)atoi(init) : NVML_SUCCESS;
}

/* Calls */

static nvmlReturn_t enter(const char *call, nvmlDevice_t device)
{
    int gpu = device ? device->gpu : NOBODY;
    const char *path = getenv("NVML_CALLS"), *code;
    char key[96];
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s %d\n", call, gpu);
        fclose(file);
    }
    if (!running)
        return NVML_ERROR_UNINITIALIZED;
    snprintf(key, sizeof key, "hang.%s", call);
    while (fact(gpu, "%s", key))
        pause();
    code = fact(gpu, "fail.%s", call);
    return code ? (nvmlReturn_t)atoi(code) : NVML_SUCCESS;
}

#define API __attribute__((visibility("default"))) nvmlReturn_t
#define ENTER(device)                                        \
    do {                                                     \
        nvmlReturn_t refused_ = enter(__func__, device);     \
        if (refused_)                                        \
            return refused_;                                 \
    } while (0)

static nvmlReturn_t put_text(const char *value, char *out, unsigned int length)
{
    size_t used = 0;
    if (!value)
        return NVML_ERROR_NOT_SUPPORTED;
    for (; *value && used + 1 < length; value++)
        if (value[0] == '\\' && value[1] == 'x') { /* \xff: a byte that is no text */
            char digits[3] = {value[2], value[3], 0};
            out[used++] = (char)strtol(digits, NULL, 16);
            value += 3;
        } else {
            out[used++] = *value;
        }
    out[used] = 0;
    return *value ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t put_number(const char *value, unsigned int *out)
{
    if (!value)
        return NVML_ERROR_NOT_SUPPORTED;
    *out = (unsigned int)strtoul(value, NULL, 0);
    return NVML_SUCCESS;
}

static nvmlReturn_t put_pci(const char *bus, nvmlPciInfo_t *pci)
{
    unsigned int domain, number, device;
    if (!bus || sscanf(bus, "%x:%x:%x", &domain, &number, &device) != 3)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    pci->domain = domain;
    pci->bus = number;
    pci->device = device;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", domain & 0xFFFF, number & 0xFF, device & 0xFF);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", domain, number & 0xFF, device & 0xFF);
    return NVML_SUCCESS;
}

static nvmlReturn_t put_set(const char *list, unsigned int words, unsigned long *out)
{
    if (!list)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(out, 0, words * sizeof *out);
    for (unsigned int bit = 0; bit < words * 64; bit++)
        if (chosen(list, (int)bit))
            out[bit / 64] |= 1UL << bit % 64;
    return NVML_SUCCESS;
}

static void put_bytes(const char *hex, unsigned char *out, int most)
{
    unsigned int byte;
    for (int i = 0; i < most && sscanf(hex + 2 * i, "%2x", &byte) == 1; i++)
        out[i] = (unsigned char)byte;
}

/* The library and the system */

API nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    nvmlReturn_t code = load();
    running = 1;
    nvmlReturn_t refused = enter(__func__, NULL);
    running = !code && !refused;
    return code ? code : refused;
}

API nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API nvmlShutdown(void)
{
    ENTER(NULL);
    running = 0;
    return NVML_SUCCESS;
}

__attribute__((visibility("default"))) const DECLDIR char *nvmlErrorString(nvmlReturn_t code)
{
    static char words[40];
    snprintf(words, sizeof words, "double error %d", (int)code);
    return words;
}

#define SYSTEM_TEXT(function, key)                       \
    API function(char *out, unsigned int length)         \
    {                                                    \
        ENTER(NULL);                                     \
        return put_text(fact(NOBODY, key), out, length); \
    }
SYSTEM_TEXT(nvmlSystemGetDriverVersion, "driver")
SYSTEM_TEXT(nvmlSystemGetNVMLVersion, "nvml")

API nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER(NULL);
    return put_number(fact(NOBODY, "cuda"), (unsigned int *)version);
}

API nvmlDeviceGetCount_v2(unsigned int *count)
{
    ENTER(NULL);
    return put_number(fact(NOBODY, "gpus"), count);
}

API nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if ((int)index >= gpus)
        return NVML_ERROR_INVALID_ARGUMENT;
    ENTER(&devices[index][0]);
    *device = &devices[index][fact((int)index, "handle_is_slice") ? 1 : 0];
    return NVML_SUCCESS;
}

/* One GPU: texts and numbers */

#define DEVICE_TEXT(function, key)                                        \
    API function(nvmlDevice_t device, char *out, unsigned int length)     \
    {                                                                     \
        ENTER(device);                                                    \
        return put_text(own(device, key), out, length);                   \
    }
DEVICE_TEXT(nvmlDeviceGetName, "name")
DEVICE_TEXT(nvmlDeviceGetUUID, "uuid")
DEVICE_TEXT(nvmlDeviceGetSerial, "serial")

#define DEVICE_NUMBER(function, type, key)                       \
    API function(nvmlDevice_t device, type *out)                 \
    {                                                            \
        ENTER(device);                                           \
        return put_number(own(device, key), (unsigned int *)out); \
    }
DEVICE_NUMBER(nvmlDeviceGetModuleId, unsigned int, "module")
DEVICE_NUMBER(nvmlDeviceGetMinorNumber, unsigned int, "minor")
DEVICE_NUMBER(nvmlDeviceGetNumaNodeId, unsigned int, "own_numa")
DEVICE_NUMBER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, "compute_mode")
DEVICE_NUMBER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, "virtualization")
DEVICE_NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, "slices")
DEVICE_NUMBER(nvmlDeviceGetGpuInstanceId, unsigned int, "gpu_instance")
DEVICE_NUMBER(nvmlDeviceGetComputeInstanceId, unsigned int, "compute_instance")

API nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    ENTER(device);
    return put_pci(own(device, "bus"), pci);
}

API nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    const char *value = own(device, "capability");
    ENTER(device);
    return value && sscanf(value, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *out)
{
    ENTER(device);
    return put_set(own(device, "cpus"), words, out);
}

API nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *out, nvmlAffinityScope_t scope)
{
    ENTER(device);
    return scope == NVML_AFFINITY_SCOPE_NODE ? put_set(own(device, "nodes"), words, out) : NVML_ERROR_INVALID_ARGUMENT;
}

/* MIG */

API nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
    ENTER(device);
    *is = device->place != WHOLE;
    return NVML_SUCCESS;
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t slice, nvmlDevice_t *device)
{
    ENTER(slice);
    *device = &devices[slice->gpu][0];
    return NVML_SUCCESS;
}

API nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending)
{
    const char *value = own(device, "mig");
    ENTER(device);
    return value && sscanf(value, "%u %u", now, pending) == 2 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int place, nvmlDevice_t *slice)
{
    ENTER(device);
    if (place >= MOST_PLACES)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!fact(device->gpu, "slice.%u.uuid", place))
        return NVML_ERROR_NOT_FOUND;
    *slice = &devices[device->gpu][place + 1];
    return NVML_SUCCESS;
}

/* State */

API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    const char *value = own(device, "memory");
    ENTER(device);
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!value || sscanf(value, "%llu %llu %llu", &memory->total, &memory->used, &memory->reserved) != 3)
        return NVML_ERROR_NOT_SUPPORTED;
    memory->free = memory->total - memory->used - memory->reserved;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    const char *value = own(device, "memory");
    unsigned long long used, reserved;
    ENTER(device);
    if (!value || sscanf(value, "%llu %llu %llu", &memory->total, &used, &reserved) != 3)
        return NVML_ERROR_NOT_SUPPORTED;
    memory->used = used + reserved;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

/* `processes` is PID:BYTES for each, PID:- where the driver hides the memory, `none` for no process. */
static nvmlReturn_t put_processes(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *out)
{
    const char *value = own(device, "processes");
    unsigned int room = *count, found = 0;
    if (!value)
        return NVML_ERROR_NOT_SUPPORTED;
    for (char *end; *value && strcmp(value, "none"); value = *end == ' ' ? end + 1 : end) {
        nvmlProcessInfo_v2_t one = {.gpuInstanceId = 0xFFFFFFFF, .computeInstanceId = 0xFFFFFFFF};
        one.pid = (unsigned int)strtoul(value, &end, 10);
        int unknown = end[1] == '-';
        one.usedGpuMemory = unknown ? (unsigned long long)NVML_VALUE_NOT_AVAILABLE : strtoull(end + 1, &end, 10);
        end += unknown ? 2 : 0;
        if (found < room && out)
            out[found] = one;
        found++;
    }
    *count = found;
    return found > room || (found && !out) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out)
{
    ENTER(device);
    return put_processes(device, count, out);
}

API nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *out)
{
    ENTER(device);
    return put_processes(device, count, out);
}

API nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now, nvmlEnableState_t *pending)
{
    ENTER(device);
    *pending = NVML_FEATURE_ENABLED;
    return put_number(own(device, "ecc"), (unsigned int *)now);
}

API nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                                unsigned long long *count)
{
    int corrected = type == NVML_MEMORY_ERROR_TYPE_CORRECTED;
    const char *value = own(device, corrected ? "ecc_corrected" : "ecc_uncorrected");
    ENTER(device);
    *count = value && counter == NVML_VOLATILE_ECC ? strtoull(value, NULL, 10) : 0;
    return value ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                              unsigned int *pending, unsigned int *failed)
{
    const char *value = own(device, "rows");
    ENTER(device);
    return value && sscanf(value, "%u %u %u %u", corrected, uncorrected, pending, failed) == 4
               ? NVML_SUCCESS
               : NVML_ERROR_NOT_SUPPORTED;
}

#define CLOCK_REASONS(function)                                          \
    API function(nvmlDevice_t device, unsigned long long *reasons)       \
    {                                                                    \
        const char *value = own(device, "throttle");                     \
        ENTER(device);                                                   \
        *reasons = value ? strtoull(value, NULL, 0) : 0;                 \
        return value ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;          \
    }
CLOCK_REASONS(nvmlDeviceGetCurrentClocksEventReasons)
CLOCK_REASONS(nvmlDeviceGetCurrentClocksThrottleReasons)

/* NVLink */

static nvmlReturn_t link_number(nvmlDevice_t device, unsigned int link, const char *key, unsigned int *out)
{
    if (fact(device->gpu, "endless"))
        return put_number("0", out);
    if (!fact(device->gpu, "link.0.version"))
        return NVML_ERROR_NOT_SUPPORTED;
    if (!fact(device->gpu, "link.%u.version", link))
        return NVML_ERROR_INVALID_ARGUMENT;
    return put_number(fact(device->gpu, "link.%u.%s", link, key), out);
}

API nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *state)
{
    unsigned int value = 0;
    ENTER(device);
    nvmlReturn_t code = link_number(device, link, "enabled", &value);
    *state = value ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return code;
}

API nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
    ENTER(device);
    return link_number(device, link, "version", version);
}

API nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *kind)
{
    ENTER(device);
    return link_number(device, link, "kind", (unsigned int *)kind);
}

API nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    ENTER(device);
    return put_pci(fact(device->gpu, "link.%u.far", link), pci);
}

static const char *field(int gpu, unsigned int id, unsigned int scope)
{
    switch (id) {
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
        return fact(gpu, "links");
    case NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT:
        return fact(gpu, "switch_links");
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON:
        return fact(gpu, "common_speed");
    case NVML_FI_DEV_NVLINK_GET_STATE:
        return fact(gpu, "link.%u.state", scope);
    case NVML_FI_DEV_NVLINK_GET_SPEED:
        return fact(gpu, "link.%u.speed", scope);
    default:
        return NULL;
    }
}

API nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    ENTER(device);
    for (int i = 0; i < count; i++) {
        const char *value = field(device->gpu, values[i].fieldId, values[i].scopeId);
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        memset(&values[i].value, 0xAA, sizeof values[i].value); /* what a careless reader would take */
        values[i].nvmlReturn = put_number(value, &values[i].value.uiVal);
    }
    return NVML_SUCCESS;
}

/* Pairs */

API nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *level)
{
    ENTER(a);
    return put_number(fact(a->gpu, "pair.%d.level", b->gpu), (unsigned int *)level);
}

API nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t capability, nvmlGpuP2PStatus_t *status)
{
    ENTER(a);
    if (capability != NVML_P2P_CAPS_INDEX_READ && capability != NVML_P2P_CAPS_INDEX_NVLINK)
        return NVML_ERROR_INVALID_ARGUMENT;
    const char *key = capability == NVML_P2P_CAPS_INDEX_READ ? "read" : "nvlink";
    return put_number(fact(a->gpu, "pair.%d.%s", b->gpu, key), (unsigned int *)status);
}

/* Fabric and platform. `fabric` is UUID STATUS CLIQUE STATE MASK SUMMARY. */

static nvmlReturn_t read_fabric(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *out)
{
    const char *value = own(device, "fabric");
    char uuid[40];
    unsigned int status, state, summary;
    if (!value)
        return NVML_ERROR_NOT_SUPPORTED;
    if (sscanf(value, "%39s %u %i %u %i %u", uuid, &status, (int *)&out->cliqueId, &state, (int *)&out->healthMask,
               &summary) != 6)
        abort();
    put_bytes(uuid, out->clusterUuid, sizeof out->clusterUuid);
    out->status = (nvmlReturn_t)status;
    out->state = (nvmlGpuFabricState_t)state;
    out->healthSummary = (unsigned char)summary;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    const char *newest = fact(NOBODY, "fabric_version");
    nvmlGpuFabricInfo_v3_t whole = {.version = out->version};
    ENTER(device);
    if (out->version != nvmlGpuFabricInfo_v2 && out->version != nvmlGpuFabricInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (newest && out->version >> 24 > (unsigned int)atoi(newest))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t code = read_fabric(device, &whole);
    if (!code)
        memcpy(out, &whole, out->version & 0xFFFF);
    return code;
}

API nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out)
{
    nvmlGpuFabricInfo_v3_t whole;
    ENTER(device);
    nvmlReturn_t code = read_fabric(device, &whole);
    if (!code) {
        memcpy(out->clusterUuid, whole.clusterUuid, sizeof out->clusterUuid);
        out->status = whole.status;
        out->cliqueId = whole.cliqueId;
        out->state = whole.state;
    }
    return code;
}

/* `platform` is GUID CHASSIS SLOT TRAY HOST PEER MODULE, the first two as hex digits. */
API nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *out)
{
    const char *value = own(device, "platform"), *newest = fact(NOBODY, "platform_version");
    char guid[40], chassis[40];
    unsigned char *places[] = {&out->slotNumber, &out->trayIndex, &out->hostId, &out->peerType, &out->moduleId};
    int read = 0;
    ENTER(device);
    if (out->version != (newest && atoi(newest) == 1 ? nvmlPlatformInfo_v1 : nvmlPlatformInfo_v2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!value)
        return NVML_ERROR_NOT_SUPPORTED;
    if (sscanf(value, "%39s %39s%n", guid, chassis, &read) != 2)
        abort();
    put_bytes(guid, out->ibGuid, sizeof out->ibGuid);
    put_bytes(chassis, out->chassisSerialNumber, sizeof out->chassisSerialNumber);
    value += read;
    for (int i = 0; i < 5; i++)
        *places[i] = (unsigned char)strtoul(value, (char **)&value, 10);
    return NVML_SUCCESS;
}
