"""Which module systems there are, by what they set in a shell and by their files."""

from collections.abc import Callable, Iterator, Mapping

from hpckit.detect.model import ModuleSystem

# Where the templates of `templates/modules/` look for them in a batch shell.
_FILES = {
    "lmod": ("/usr/share/lmod/lmod/init/bash", "/opt/apps/lmod/lmod/init/bash"),
    "tmod": (
        "/usr/share/modules/init/bash",
        "/usr/share/Modules/init/bash",
        "/opt/modules/default/init/bash",
    ),
}
_LMOD = ("LMOD_CMD", "LMOD_VERSION", "LMOD_PKG")
_TMOD = ("MODULES_CMD", "MODULESHOME", "LOADEDMODULES")


def module_systems(
    environ: Mapping[str, str], is_file: Callable[[str], bool]
) -> tuple[ModuleSystem, ...]:
    """Return the module systems of this machine, those of this shell first.

    Lmod sets MODULESHOME and LOADEDMODULES, too: they mean Environment Modules only without it.
    """
    found = [*_of_shell(environ)]
    active = {row.name for row in found}
    for name, paths in _FILES.items():
        path = next((path for path in paths if is_file(path)), None)
        if path and name not in active:
            found.append(ModuleSystem(name=name, evidence=path, active=False))
    return tuple(found)


def _of_shell(environ: Mapping[str, str]) -> Iterator[ModuleSystem]:
    lmod = next((name for name in _LMOD if environ.get(name)), None)
    tmod = next((name for name in _TMOD if environ.get(name)), None)
    if lmod:
        yield ModuleSystem(name="lmod", evidence=f"${lmod}", active=True)
    elif tmod:
        yield ModuleSystem(name="tmod", evidence=f"${tmod}", active=True)
    if environ.get("SPACK_ROOT"):
        yield ModuleSystem(name="spack", evidence="$SPACK_ROOT", active=True)
