-- hpckit for everybody, by Lmod: copy this file to APPS/modulefiles/hpckit/VERSION.lua, where
-- APPS/VERSION/ is what docs/install-for-all.md installs, and `module use APPS/modulefiles`.
-- It finds APPS and the version by its own place and name, so no line needs a change.

local apps = myFileName():match("^(.*)/modulefiles/hpckit/[^/]+$")
local root = pathJoin(apps, myModuleVersion())

whatis("Name: hpckit")
whatis("Version: " .. myModuleVersion())
whatis("Description: Submit multi-GPU work to Slurm with one line, and see what became of it.")
help([[hpckit --help, man hpckit. First: hpckit doctor]])

-- Only `hpckit` and its man page: bin/ has no python or pip that would shadow the user's own.
prepend_path("PATH", pathJoin(root, "bin"))
-- man finds the page by PATH, unless another module has set MANPATH.
if (os.getenv("MANPATH") or "") ~= "" then
    prepend_path("MANPATH", pathJoin(root, "share/man"))
end

-- Sites, templates and workloads for everybody on this cluster, after the user's own. A folder
-- that has neither part is not a collection yet, and hpckit would refuse it.
local collection = pathJoin(apps, "collection")
if isDir(pathJoin(collection, "templates")) or isDir(pathJoin(collection, "workloads")) then
    append_path("HPCKIT_COLLECTIONS", collection)
end

-- The Tab key, in bash.
local words = pathJoin(root, "share/hpckit/completion.bash")
if myShellName() == "bash" and isFile(words) then
    source_sh("bash", words)
end
