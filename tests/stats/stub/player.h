/* Plays a script: what a driver would answer, second by second. nvml_stub.c and amd_stub.c answer in
 * their libraries' words; each defines SUCCESS, NOT_SUPPORTED and LOST before it includes this.
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
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>


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
    char uuid[96], name[96], pci[32], na[256], mended[4096];
    unsigned long long memory_total, power_limit, energy_base;
    double lost, hang, energy_reset;
    int fails; Fail fail[8];
    Curve curve[CURVES];
    int processes; Process process[16];
} Unit;

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
    else if (!strcmp(key, "mended")) sscanf(rest, " %4095[^\n]", unit->mended);
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

/* When the script started: what the first process to ask wrote, be there several at one moment. */
static double begun(const char *path) {
    double told = real_now() - 0.25;
    char part[4096];
    if (!path) return told;
    snprintf(part, sizeof part, "%s.XXXXXX", path);
    int own = mkstemp(part);
    if (own < 0 || dprintf(own, "%.9f\n", told) < 0 || close(own)) abort();
    int lost = link(part, path);
    if (lost && errno != EEXIST) abort();
    unlink(part);
    if (!lost) return told;
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%lf", &told) != 1) abort();
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
        int mended = u->mended[0] && !access(u->mended, F_OK); /* a file that ends all failures */
        for (int k = 0; !mended && k < u->fails; k++) {
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
