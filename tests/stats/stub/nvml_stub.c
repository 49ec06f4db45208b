/* A libnvidia-ml.so.1 that plays a script (player.h). */
enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, LOST = 15, UNKNOWN = 999 };
#include "player.h"

typedef struct { double at; Unit *unit; } GpmSample;

int nvmlInitWithFlags(unsigned flags) { (void)flags; load(); return missing_driver ? 9 : SUCCESS; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "stub error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "%s", driver);
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12080; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 0;
    for (int k = 0; k < unit_count; k++) *count += !units[k].board;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Unit **handle) {
    for (int k = 0; k < unit_count; k++)
        if (!units[k].board && units[k].index == (int)index) {
            *handle = &units[k];
            READY(*handle, "handle");
            return units[k].forbidden ? NO_PERMISSION : SUCCESS;
        }
    return INVALID;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Unit **handle) {
    for (int k = 0; k < unit_count; k++)
        if (!strcmp(units[k].uuid, uuid)) {
            *handle = &units[k];
            READY(*handle, "handle");
            return SUCCESS;
        }
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(Unit *u, unsigned *index) { *index = u->index; return SUCCESS; }
int nvmlDeviceGetUUID(Unit *u, char *text, unsigned length) {
    snprintf(text, length, "%s", u->uuid);
    return SUCCESS;
}
int nvmlDeviceGetName(Unit *u, char *text, unsigned length) {
    READY(u, "name");
    snprintf(text, length, "%s", u->name);
    return SUCCESS;
}
int nvmlDeviceGetMinorNumber(Unit *u, unsigned *minor) { *minor = u->minor; return SUCCESS; }
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Unit *u, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", BOARD(u)->pci);
    return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(Unit *u, unsigned *mw) {
    READY(u, "power_limit");
    *mw = u->power_limit;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(Unit *u, unsigned long long *memory) {
    READY(u, "memory");
    unsigned long long used = value(&u->curve[MEMORY], now());
    memory[0] = u->memory_total; memory[1] = u->memory_total - used; memory[2] = used;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(Unit *u, unsigned *rates) {
    READY(u, "utilization");
    if (u->board) return NOT_SUPPORTED;
    rates[0] = lround(mean(&u->curve[UTIL], now() - WINDOW, now()));
    rates[1] = 0;
    return SUCCESS;
}
typedef struct { unsigned long long time; union { unsigned u; unsigned long long ull; } v; } Buffered;
int nvmlDeviceGetSamples(Unit *u, int kind, unsigned long long since, int *type, unsigned *count,
                         Buffered *found) {
    READY(u, "samples");
    if (u->board || kind != 1) return NOT_SUPPORTED;
    *type = 1;
    /* Real driver times are wall clock; windows are WINDOW real seconds long, or shorter in a fast
     * script, and end at multiples of it. */
    double window = scale > 1 ? WINDOW / scale * 2 : WINDOW, t = real_now();
    unsigned kept = BUFFERED * WINDOW / window;
    if (!found) { *count = kept; return SUCCESS; }
    long long last = floor(t / window), n = 0;
    for (long long k = last - kept + 1; k <= last && n < *count; k++) {
        unsigned long long stamp = k * window * 1e6;
        if (stamp <= since || k * window < start) continue;
        found[n].time = stamp;
        double to = script_time(k * window), from = script_time((k - 1) * window);
        found[n++].v.ull = lround(mean(&u->curve[UTIL], from, to));
    }
    /* A ring: the newest comes first here, the others in order. NVML promises no order. */
    if (n > 1) {
        Buffered newest = found[n - 1];
        memmove(found + 1, found, (n - 1) * sizeof *found);
        found[0] = newest;
    }
    *count = n;
    if (n) tell(u, "samples", script_time(last * window));
    return n ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetTotalEnergyConsumption(Unit *u, unsigned long long *mj) {
    READY(u, "energy");
    double t = now(), from = t >= u->energy_reset ? u->energy_reset : 0;
    double used = integral(&u->curve[POWER], from, t) / scale;
    *mj = (t >= u->energy_reset ? 0 : u->energy_base) + (unsigned long long)used;
    tell(u, "energy", t);
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(Unit *u, unsigned *mw) {
    READY(u, "power");
    *mw = value(&u->curve[POWER], now());
    return SUCCESS;
}
int nvmlDeviceGetClockInfo(Unit *u, int kind, unsigned *mhz) {
    READY(u, "clocks");
    *mhz = kind == 2 ? 3201 : 1980;
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Unit *u, unsigned long long *reasons) {
    READY(u, "throttle");
    *reasons = value(&u->curve[UTIL], now()) > 0 ? 4 : 1; /* power cap, or idle */
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksEventReasons(Unit *u, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(u, reasons);
}
int nvmlDeviceGetTemperature(Unit *u, int sensor, unsigned *celsius) {
    (void)sensor;
    READY(u, "temperature");
    *celsius = 45;
    return SUCCESS;
}
int nvmlDeviceGetEncoderUtilization(Unit *u, unsigned *percent, unsigned *period) {
    READY(u, "encoder");
    *percent = 37 + 2 * u->index;
    *period = 167000;
    return SUCCESS;
}
typedef struct { unsigned field, scope; long long time, latency; int type, status;
                 union { unsigned u; unsigned long long ull; } v; } Field;
int nvmlDeviceGetFieldValues(Unit *u, int count, Field *fields) {
    READY(u, "fields");
    for (int k = 0; k < count; k++) {
        fields[k].status = fields[k].field == 82 ? SUCCESS : NOT_SUPPORTED;
        fields[k].type = 1;
        fields[k].v.ull = 52;
    }
    return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(Unit *u, int kind, int counter, unsigned long long *count) {
    (void)counter;
    READY(u, "ecc");
    *count = kind ? 0 : 3;
    return SUCCESS;
}
int nvmlDeviceGetRemappedRows(Unit *u, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
    READY(u, "remapped");
    *a = *b = *c = *d = 0;
    return SUCCESS;
}
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } ProcessInfo;
int nvmlDeviceGetComputeRunningProcesses_v3(Unit *u, unsigned *count, ProcessInfo *found) {
    READY(u, "processes");
    unsigned n = 0, room = *count;
    for (int k = 0; k < u->processes; k++) {
        Process *p = &u->process[k];
        if (now() < p->from || now() >= p->to) continue;
        if (found && n < room) found[n] = (ProcessInfo){p->pid, p->bytes, ~0u, ~0u};
        n++;
    }
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}
static int slices_of(Unit *u) {
    int n = 0;
    for (int k = 0; k < unit_count; k++) n += units[k].board == u;
    return n;
}
int nvmlDeviceGetMigMode(Unit *u, unsigned *current, unsigned *pending) {
    READY(u, "mig");
    *current = *pending = slices_of(u) > 0;
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Unit *u, unsigned *count) {
    *count = slices_of(u) ? 7 : 0;
    return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Unit *u, unsigned index, Unit **handle) {
    for (int k = 0; k < unit_count; k++)
        if (units[k].board == u && index-- == 0) { *handle = &units[k]; return SUCCESS; }
    return NOT_FOUND;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Unit *u, Unit **board) {
    *board = u->board;
    return u->board ? SUCCESS : INVALID;
}
int nvmlDeviceGetGpuInstanceId(Unit *u, unsigned *id) { *id = u->instance; return SUCCESS; }
int nvmlDeviceIsMigDeviceHandle(Unit *u, unsigned *is) { *is = !!u->board; return SUCCESS; }

/* GPM: metrics are the exact means between two samples. */
int nvmlGpmQueryDeviceSupport(Unit *u, unsigned *support) { support[1] = u->gpm; return SUCCESS; }
int nvmlGpmSampleAlloc(GpmSample **sample) { return (*sample = calloc(1, sizeof **sample)) ? 0 : UNKNOWN; }
int nvmlGpmSampleFree(GpmSample *sample) { free(sample); return SUCCESS; }
int nvmlGpmSampleGet(Unit *u, GpmSample *sample) {
    READY(u, "gpm");
    *sample = (GpmSample){now(), u};
    tell(u, "gpm", sample->at);
    return SUCCESS;
}
int nvmlGpmMigSampleGet(Unit *board, unsigned instance, GpmSample *sample) {
    for (int k = 0; k < unit_count; k++)
        if (units[k].board == board && units[k].instance == (int)instance)
            return nvmlGpmSampleGet(&units[k], sample);
    return INVALID;
}
typedef struct { unsigned id; int status; double value; char *info[3]; } Metric;
typedef struct { unsigned version, count; GpmSample *first, *second; Metric metric[]; } Metrics;
int nvmlGpmMetricsGet(Metrics *m) {
    static const int curves[] = {-1, GRAPHICS, SM, OCCUPANCY, -1, TENSOR, -1, -1, -1, -1, DRAM};
    double from = m->first->at, to = m->second->at;
    if (to - from < 0.1 * scale * 0.9) return INVALID;
    for (unsigned k = 0; k < m->count; k++) {
        unsigned id = m->metric[k].id;
        int curve = id < sizeof curves / sizeof *curves ? curves[id] : -1;
        m->metric[k].status = curve < 0 ? NOT_SUPPORTED : SUCCESS;
        m->metric[k].value = curve < 0 ? 0 : mean(&m->second->unit->curve[curve], from, to);
    }
    return SUCCESS;
}
/* Calls that hold a lock of the whole driver, or block for 20 ms: a sampler that makes one is
 * ended, unless NVML_STUB_TOLERANT (benchmarks/sampler.py plays for other programs, too). */
static int harmful(void) {
    if (!getenv("NVML_STUB_TOLERANT")) abort();
    return NOT_SUPPORTED;
}
int nvmlDeviceGetPcieThroughput(Unit *u, int c, unsigned *v) {
    (void)u; (void)c; (void)v;
    return harmful();
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Unit *u, unsigned *count, void *found) {
    (void)u; (void)found;
    *count = 0;
    harmful();
    return SUCCESS;
}
int nvmlDeviceGetFanSpeed(Unit *u, unsigned *v) { (void)u; (void)v; return harmful(); }
