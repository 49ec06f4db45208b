/* A libamd_smi.so that plays a script (player.h), as AMD's of ROCm 7 answers: its structures are
 * those of amdsmi's amdsmi_wrapper.py. A slice of the script is a partition of its GPU (CPX); in a
 * partitioned GPU, a handle is of a partition, and there is none of the whole.
 *
 * AMD_STUB_MAJOR    the library's major version, 26 if not set
 */
enum { SUCCESS = 0, INVALID = 1, NOT_SUPPORTED = 2, LOST = 31, DRIVER_NOT_LOADED = 34 };
#include "player.h"

#define PACKED __attribute__((packed))
#define NONE32 0xFFFFFFFFu
#define NONE16 0xFFFFu
typedef unsigned long long u64;
/* Of a package made for MI300: energy in steps of 15.259 uJ. */
static const float resolution = 15.259f;

static int parts_of(const Unit *u) {
    int n = 0;
    for (int k = 0; k < unit_count; k++) n += units[k].board == u;
    return n;
}
static int is_listed(Unit *u) { return !parts_of(u) && !u->forbidden; }

int amdsmi_init(u64 flags) { (void)flags; load(); return missing_driver ? DRIVER_NOT_LOADED : SUCCESS; }
int amdsmi_shut_down(void) { return SUCCESS; }
typedef struct { unsigned major, minor, release, padding; char *build; } Version;
int amdsmi_get_lib_version(Version *version) {
    const char *text = getenv("AMD_STUB_MAJOR");
    *version = (Version){text ? atoi(text) : 26, 0, 2, 0, "stub"};
    return SUCCESS;
}
/* One socket has all. */
int amdsmi_get_socket_handles(unsigned *count, void **found) {
    if (found) found[0] = units;
    *count = 1;
    return SUCCESS;
}
int amdsmi_get_processor_handles(void *socket, unsigned *count, Unit **found) {
    (void)socket;
    unsigned n = 0;
    /* Not in PCI order, as AMD's may be. */
    for (int k = unit_count - 1; k >= 0; k--)
        if (is_listed(&units[k]) && now() < BOARD(&units[k])->lost) {
            if (found) found[n] = &units[k];
            n++;
        }
    *count = n;
    return SUCCESS;
}
int amdsmi_get_gpu_device_bdf(Unit *u, u64 *bdf) {
    unsigned domain, bus, device, function;
    READY(u, "handle");
    if (sscanf(BOARD(u)->pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) abort();
    if (u->board) function = u->instance;
    *bdf = (u64)domain << 16 | bus << 8 | device << 3 | function;
    return SUCCESS;
}
int amdsmi_get_gpu_device_uuid(Unit *u, unsigned *length, char *uuid) {
    READY(u, "uuid");
    snprintf(uuid, *length, "own-%.20s", BOARD(u)->uuid);
    return SUCCESS;
}
typedef struct PACKED { unsigned render, card, hsa, hip; char hip_uuid[256]; } Enumeration;
int amdsmi_get_gpu_enumeration_info(Unit *u, Enumeration *e) {
    READY(u, "enumeration");
    *e = (Enumeration){9000 + u->index, u->index, u->index, u->index, ""};
    snprintf(e->hip_uuid, sizeof e->hip_uuid, "%s", BOARD(u)->uuid);
    return SUCCESS;
}
typedef struct PACKED {
    char market_name[256];
    unsigned vendor_id;
    char vendor_name[256];
    unsigned subvendor_id;
    u64 device_id;
    unsigned rev_id;
    char serial[256];
    unsigned oam_id, compute_units, padding;
    u64 graphics_version;
    unsigned subsystem_id, reserved[21];
} Asic;
int amdsmi_get_gpu_asic_info(Unit *u, Asic *a) {
    READY(u, "name");
    *a = (Asic){.vendor_id = 0x1002, .vendor_name = "Advanced Micro Devices, Inc.",
                .device_id = 0x74a1, .compute_units = 304, .graphics_version = 0x942};
    snprintf(a->market_name, sizeof a->market_name, "%s", BOARD(u)->name);
    snprintf(a->serial, sizeof a->serial, "0x%04X00000000ABCD", 0x5DC0 + u->index);
    return SUCCESS;
}
typedef struct PACKED { char version[256], date[256], name[256]; } Driver;
int amdsmi_get_gpu_driver_info(Unit *u, Driver *d) {
    READY(u, "driver");
    *d = (Driver){"", "2025/09/01", "amdgpu"};
    snprintf(d->version, sizeof d->version, "%s", driver);
    return SUCCESS;
}
int amdsmi_get_gpu_compute_partition(Unit *u, char *text, unsigned length) {
    READY(u, "partition");
    snprintf(text, length, "%s", u->board ? "CPX" : "SPX");
    return SUCCESS;
}
typedef struct PACKED { u64 id; unsigned node, partition, reserved[12]; } Kfd;
int amdsmi_get_gpu_kfd_info(Unit *u, Kfd *k) {
    READY(u, "kfd");
    *k = (Kfd){77, u->index, u->board ? (unsigned)u->instance : 0, {0}};
    return SUCCESS;
}
typedef struct PACKED { unsigned gfx, umc, mm, reserved[13]; } Engines;
int amdsmi_get_gpu_activity(Unit *u, Engines *e) {
    READY(u, "utilization");
    *e = (Engines){lround(mean(&u->curve[UTIL], now() - WINDOW, now())), NONE16, NONE16, {0}};
    return SUCCESS;
}
int amdsmi_get_gpu_memory_total(Unit *u, int kind, u64 *bytes) {
    READY(u, "memory_total");
    *bytes = kind ? 0 : u->memory_total;
    return SUCCESS;
}
int amdsmi_get_gpu_memory_usage(Unit *u, int kind, u64 *bytes) {
    READY(u, "memory");
    *bytes = kind ? 0 : value(&u->curve[MEMORY], now());
    return SUCCESS;
}
typedef struct PACKED {
    u64 socket;
    unsigned current, average;
    u64 gfx_voltage, soc_voltage, mem_voltage;
    unsigned limit, padding;
    u64 reserved[18];
} Power;
/* Watts; what this board has no sensor for has all bits set. The word `older` makes it an MI200. */
int amdsmi_get_power_info(Unit *u, Power *p) {
    READY(u, "power");
    unsigned watts = lround(value(&u->curve[POWER], now()) / 1000);
    int older = u->gpm == 0;
    *p = (Power){watts, older ? NONE16 : watts, older ? watts : NONE16, NONE16, NONE16, NONE16,
                 u->power_limit / 1000, 0, {0}};
    return SUCCESS;
}
int amdsmi_get_energy_count(Unit *u, u64 *count, float *step, u64 *stamp) {
    READY(u, "energy");
    double t = now(), from = t >= u->energy_reset ? u->energy_reset : 0;
    double used = integral(&u->curve[POWER], from, t) / scale;
    double mj = (t >= u->energy_reset ? 0 : (double)u->energy_base) + used;
    *count = (u64)(mj * 1000 / resolution);
    *step = resolution;
    *stamp = (u64)(t * 1e9);
    tell(u, "energy", t);
    return SUCCESS;
}
typedef struct PACKED {
    unsigned clk, least, most;
    unsigned char locked, deep_sleep, padding[2];
    unsigned reserved[4];
} Clock;
int amdsmi_get_clock_info(Unit *u, int kind, Clock *c) {
    READY(u, "clocks");
    *c = (Clock){kind == 4 ? 1300 : kind == 0 ? 2100 : NONE32, 132, 2100, 0xFF, 0xFF, {0}, {0}};
    return SUCCESS;
}
/* MI300 has no sensor of its edge. */
int amdsmi_get_temp_metric(Unit *u, int sensor, int metric, long long *celsius) {
    READY(u, "temperature");
    if (metric || (sensor != 1 && sensor != 2)) return NOT_SUPPORTED;
    *celsius = sensor == 1 ? 61 : 48;
    return SUCCESS;
}
typedef struct PACKED { u64 correctable, uncorrectable, deferred, reserved[5]; } Errors;
int amdsmi_get_gpu_total_ecc_count(Unit *u, Errors *e) {
    READY(u, "ecc");
    *e = (Errors){4, 1, 0, {0}};
    return SUCCESS;
}
typedef struct PACKED {
    char name[256];
    unsigned pid, padding;
    u64 mem, gfx, enc;
    unsigned reserved1[12];
    u64 gtt, cpu, vram;
    unsigned reserved2[10];
    char container[256];
    unsigned occupancy, reserved3[11];
} Running;
int amdsmi_get_gpu_process_list(Unit *u, unsigned *count, Running *found) {
    READY(u, "processes");
    unsigned n = 0;
    for (int k = 0; k < u->processes; k++) {
        Process *p = &u->process[k];
        if (now() < p->from || now() >= p->to) continue;
        if (n < *count) found[n] = (Running){.name = "python", .pid = p->pid, .vram = p->bytes};
        n++;
    }
    *count = n;
    return SUCCESS;
}
