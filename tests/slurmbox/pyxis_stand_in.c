/*
 * Stands in for Pyxis: a SPANK plugin with the options of srun that hpckit gives, for tests.
 *
 * The image is a folder. Each task gets a user and a mount namespace of its own, in which that
 * folder, with some of the machine's and what --container-mounts names, is all there is. As with
 * Pyxis, PATH is the image's, and the working directory the container's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

SPANK_PLUGIN(hpckit_pyxis_stand_in, 1)

static char *image, *mounts;

static int take_image(int val, const char *text, int remote)
{
    (void)val, (void)remote;
    image = strdup(text);
    return 0;
}

static int take_mounts(int val, const char *text, int remote)
{
    (void)val, (void)remote;
    mounts = strdup(text);
    return 0;
}

static int take_nothing(int val, const char *text, int remote)
{
    (void)val, (void)text, (void)remote;
    return 0;
}

static struct spank_option options[] = {
    {"container-image", "IMAGE", "[stand-in] a folder", 1, 0, take_image},
    {"container-mounts", "SRC:DST,...", "[stand-in] what of the node is shown", 1, 0, take_mounts},
    {"container-mount-home", NULL, "[stand-in] nothing", 0, 0, take_nothing},
    SPANK_OPTIONS_TABLE_END,
};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    for (struct spank_option *row = options; row->name; row++)
        if (spank_option_register(sp, row) != ESPANK_SUCCESS)
            return -1;
    return 0;
}

static int failed(const char *what)
{
    slurm_error("pyxis stand-in: %s: %m", what);
    return -1;
}

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    int bad = fd < 0 || write(fd, text, strlen(text)) < 0;
    if (fd >= 0)
        close(fd);
    return bad ? failed(path) : 0;
}

static void make_folders(char *path)
{
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0755);
        *at = '/';
    }
    mkdir(path, 0755);
}

static int show(const char *source, const char *target)
{
    char *place;
    if (asprintf(&place, "%s%s", image, target) < 0)
        return -1;
    make_folders(place);
    return mount(source, place, NULL, MS_BIND | MS_REC, NULL) ? failed(source) : 0;
}

static int enter(void)
{
    static const char *const own[] = {"/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"};
    char map[64];
    unsigned uid = getuid(), gid = getgid();

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
        return failed("unshare");
    if (put("/proc/self/setgroups", "deny"))
        return -1;
    snprintf(map, sizeof map, "%u %u 1\n", uid, uid);
    if (put("/proc/self/uid_map", map))
        return -1;
    snprintf(map, sizeof map, "%u %u 1\n", gid, gid);
    if (put("/proc/self/gid_map", map))
        return -1;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return failed("private mounts");
    if (mount(image, image, NULL, MS_BIND | MS_REC, NULL))
        return failed(image);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (show(own[i], own[i]))
            return -1;
    for (char *rest = mounts, *word; rest && (word = strsep(&rest, ","));) {
        char *source = strsep(&word, ":"), *target = strsep(&word, ":");
        if (access(source, F_OK) || show(source, target))
            return failed(source);
    }
    if (chdir(image) || syscall(SYS_pivot_root, ".", "."))
        return failed("pivot_root");
    return umount2(".", MNT_DETACH) || chdir("/") ? failed("umount") : 0;
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    if (!image)
        return 0;
    if (image[0] != '/') {
        slurm_error("pyxis stand-in: no registry has %s", image);
        return -1;
    }
    spank_setenv(sp, "PATH", "/opt/image/bin:/usr/bin:/bin", 1);
    spank_setenv(sp, "HPCKIT_TEST_IMAGE", image, 1);
    spank_setenv(sp, "IN_IMAGE", "yes", 1);
    return enter();
}
