/* A libnvidia-ml.so.1 that plays a script: what a driver would answer, second by second.
 *
 * NVML_STUB_SCRIPT  the script (its words: tests/stats/stub/script.py, which writes it and computes
 *                   the exact means of what is played); `%h` in it is the host's name
 * NVML_STUB_SCALE   script seconds per real second, 1 if not set
 * NVML_STUB_READS   a file that is told of each reading of GPM, energy and buffered utilization: pid,
 *                   UUID, which, its time, and until when it speaks; `%h` as above
 * NVML_STUB_T0      CLOCK_MONOTONIC, in seconds, at which the script starts
 * NVML_STUB_BEGAN   instead: a file that the first call of all makes, with that time; a quarter of a
 *                   second before, so that what is sampled first is within the script
 *
 * Values hold from their time to the next one's. Power is what the energy counter's slope shows in
 * real time; the counter itself is the exact integral.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, LOST = 15, UNKNOWN = 999 };
enum { UTIL, MEMORY, POWER, SM, OCCUPANCY, TENSOR, DRAM, GRAPHICS, CURVES };
static const char *curve_names[] = {"util", "memory", "power", "sm", "occupancy", "tensor", "dram",
                                    "graphics"};
#define STEPS 512
#define UNITS 64
#define WINDOW 0.166 /* seconds of script time of one buffered utilization sample at scale 1 */
#define BUFFERED 120 /* windows: 20 s, as real drivers keep */

typedef struct { int n; double t[STEPS], v[STEPS]; } Curve;
typedef struct { unsigned pid; unsigned long long bytes; double from, to; } Process;
typedef struct { int code; double from, to; char field[32]; } Fail; /* no field: all of them */
typedef struct Unit {
    struct Unit *board; /* of a slice; NULL for a whole GPU */
    int index, minor, instance, gpm, forbidden;
    char uuid[96], name[96], pci[32], na[256];
    unsigned long long memory_total, power_limit, energy_base;
    double lost, hang, energy_reset;
    int fails; Fail fail[8];
    Curve curve[CURVES];
    int processes; Process process[16];
} Unit;
typedef struct { double at; Unit *unit; } GpmSample;

static Unit units[UNITS];
static int unit_count, missing_driver, loaded;
static double scale = 1, start = -1;
static char driver[80] = "570.86";
static FILE *calls, *reads;

static double real_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}
static double script_time(double real) { return (real - start) * scale; }
static double now(void) { return script_time(real_now()); }

static void load_curve(Curve *curve, char *text) {
    for (char *word = strtok(text, " \n"); word && curve->n < STEPS; word = strtok(NULL, " \n"))
        if (sscanf(word, "%lf:%lf", &curve->t[curve->n], &curve->v[curve->n]) == 2) curve->n++;
}

static void load_line(Unit *unit, const char *key, char *rest) {
    char value[256] = "";
    sscanf(rest, " %255[^\n]", value);
    for (int k = 0; k < CURVES; k++)
        if (!strcmp(key, curve_names[k])) { load_curve(&unit->curve[k], rest); return; }
    if (!strcmp(key, "uuid")) snprintf(unit->uuid, sizeof unit->uuid, "%s", value);
    else if (!strcmp(key, "name")) snprintf(unit->name, sizeof unit->name, "%s", value);
    else if (!strcmp(key, "pci")) snprintf(unit->pci, sizeof unit->pci, "%s", value);
    else if (!strcmp(key, "na")) snprintf(unit->na, sizeof unit->na, " %s ", value);
    else if (!strcmp(key, "minor")) unit->minor = atoi(value);
    else if (!strcmp(key, "instance")) unit->instance = atoi(value);
    else if (!strcmp(key, "gpm")) unit->gpm = atoi(value);
    else if (!strcmp(key, "forbidden")) unit->forbidden = atoi(value);
    else if (!strcmp(key, "memory_total")) unit->memory_total = strtoull(value, NULL, 10);
    else if (!strcmp(key, "power_limit")) unit->power_limit = strtoull(value, NULL, 10);
    else if (!strcmp(key, "energy_base")) unit->energy_base = strtoull(value, NULL, 10);
    else if (!strcmp(key, "lost")) unit->lost = atof(value);
    else if (!strcmp(key, "hang")) unit->hang = atof(value);
    else if (!strcmp(key, "energy_reset")) unit->energy_reset = atof(value);
    else if (!strcmp(key, "process") && unit->processes < 16) {
        Process *p = &unit->process[unit->processes++];
        p->to = INFINITY;
        sscanf(value, "%u %llu %lf %lf", &p->pid, &p->bytes, &p->from, &p->to);
    } else if (!strcmp(key, "fail") && unit->fails < 8) {
        Fail *f = &unit->fail[unit->fails++];
        f->to = INFINITY;
        sscanf(value, "%d %lf %lf %31s", &f->code, &f->from, &f->to, f->field);
    } else { fprintf(stderr, "nvml_stub: unknown word '%s'\n", key); abort(); }
}

/* Fills in the host's name for %h. */
static char *named(const char *text) {
    static char path[4096];
    char host[256];
    const char *mark = strstr(text, "%h");
    int before = mark ? mark - text : (int)strlen(text);
    if (gethostname(host, sizeof host)) abort();
    snprintf(path, sizeof path, "%.*s%s%s", before, text, mark ? host : "", mark ? mark + 2 : "");
    return path;
}

static double begun(const char *path) {
    double told = real_now() - 0.25;
    char part[4096];
    if (!path) return told;
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%lf", &told) != 1) abort();
    } else {
        snprintf(part, sizeof part, "%s.part", path);
        if (!(file = fopen(part, "w"))) abort();
        fprintf(file, "%.9f\n", told);
        if (fflush(file) || rename(part, path)) abort();
    }
    fclose(file);
    return told;
}

static void load(void) {
    if (loaded++) return;
    const char *text;
    if ((text = getenv("NVML_STUB_SCALE"))) scale = atof(text);
    start = (text = getenv("NVML_STUB_T0")) ? atof(text) : begun(getenv("NVML_STUB_BEGAN"));
    if ((text = getenv("NVML_STUB_CALLS"))) calls = fopen(text, "a");
    if ((text = getenv("NVML_STUB_READS"))) reads = fopen(named(text), "a");
    FILE *file = (text = getenv("NVML_STUB_SCRIPT")) ? fopen(named(text), "r") : NULL;
    if (!file) { missing_driver = 1; return; }
    static char line[65536];
    char key[64];
    int offset;
    Unit *unit = NULL, *board = NULL;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63s%n", key, &offset) != 1 || key[0] == '#') continue;
        int slice = !strcmp(key, "slice");
        if (slice || !strcmp(key, "gpu")) {
            unit = &units[unit_count++];
            unit->lost = unit->hang = unit->energy_reset = INFINITY;
            unit->gpm = 1;
            if (slice) { unit->board = board; unit->index = board->index; }
            else { board = unit; unit->index = unit->minor = atoi(line + offset); }
        } else if (!strcmp(key, "driver")) sscanf(line + offset, "%79s", driver);
        else load_line(unit, key, line + offset);
    }
    fclose(file);
}

static double value(const Curve *curve, double t) {
    double found = 0;
    for (int k = 0; k < curve->n && curve->t[k] <= t; k++) found = curve->v[k];
    return found;
}

static double integral(const Curve *curve, double from, double to) {
    double sum = 0;
    for (int k = 0; k < curve->n; k++) {
        double a = curve->t[k], b = k + 1 < curve->n ? curve->t[k + 1] : INFINITY;
        if (k == 0) a = a < from ? a : a;
        a = a > from ? a : from;
        b = b < to ? b : to;
        if (b > a) sum += curve->v[k] * (b - a);
    }
    return sum;
}
static double mean(const Curve *curve, double from, double to) {
    return to > from ? integral(curve, from, to) / (to - from) : value(curve, to);
}

/* Every entry point asks here first: logs the call, hangs, is lost, or lacks the field. */
static int ready(Unit *unit, const char *field) {
    Unit *board = unit->board ? unit->board : unit;
    char padded[64];
    if (calls) { fprintf(calls, "%s\n", field); fflush(calls); }
    if (now() >= board->hang) for (;;) pause();
    if (now() >= board->lost) return LOST;
    for (Unit *u = unit;; u = board) { /* a slice's own failures, then its GPU's */
        for (int k = 0; k < u->fails; k++) {
            Fail *f = &u->fail[k];
            if (now() >= f->from && now() < f->to && (!f->field[0] || !strcmp(f->field, field)))
                return f->code;
        }
        if (u == board) break;
    }
    snprintf(padded, sizeof padded, " %s ", field);
    return strstr(unit->na, padded) ? NOT_SUPPORTED : SUCCESS;
}
/* Tells until when an answer speaks of the GPU: only then are a sample's exact figures known. */
static void tell(const Unit *unit, const char *field, double until) {
    if (!reads) return;
    fprintf(reads, "%d %s %s %.9f %.9f\n", (int)getpid(), unit->uuid, field, now(), until);
    fflush(reads);
}
#define READY(unit, field) do { int r_ = ready(unit, field); if (r_) return r_; } while (0)
#define BOARD(unit) ((unit)->board ? (unit)->board : (unit))

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
    *percent = 37 + u->index;
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
