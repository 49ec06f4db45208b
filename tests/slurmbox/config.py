"""The texts of the box's configuration files: pure functions of the layout."""

from tests.slurmbox.layout import (
    CPUS_PER_NODE,
    GPUS_PER_NODE,
    HEAD,
    NODE_MEMORY_MB,
    NODES,
    Layout,
    node_address,
)

_SLURM_CONF = """\
ClusterName=box
SlurmctldHost={head}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job waits for cred_expire before it may start again: 120 s by default.
AuthInfo=socket={munge},cred_expire=8
CryptoType=crypto/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/%n/spool
# PMIx puts its sockets there: each node needs its own.
TmpFS={dir}/%n
SlurmctldPidFile={dir}/run/slurmctld.pid
SlurmdPidFile={dir}/run/%n.pid
SlurmctldDebug=info
SlurmdDebug=info
MailProg=/bin/true

ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# `srun --mpi=pmix` works; a forgotten --mpi shows, as it does on many sites.
MpiDefault=none
# The nodes claim more than the machine has.
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=15
# Longer than what hpckit gives deaf ranks, as on any site (30 s by default).
KillWait=10
MinJobAge=300
JobRequeue=1
MaxArraySize=1001
MaxJobCount=10000
FirstJobId={first_job_id}

# Jobs start within a second or two, whatever else waits.
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# Without it a job that asks for no memory gets the whole node's.
DefMemPerCPU=2000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE

JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
# Not a password: the clients of slurmdbd find munged with it.
AccountingStoragePass={munge}
# An unknown account is refused, as on a real site.
AccountingStorageEnforce=associations
AccountingStorageTRES=gres/gpu,gres/gpu:h200
AccountingStoreFlags=job_comment,job_script,job_env

GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=01:00:00 PriorityTier=1
PartitionName=short Nodes=ALL MaxTime=00:30:00 DefaultTime=00:05:00 PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=01:00:00 DefaultTime=00:05:00 PriorityTier=10
"""

_SLURMDBD_CONF = """\
DbdHost={head}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
PidFile={dir}/run/slurmdbd.pid
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


# Slurm 22.05's PMIx lets a rank through MPI_Init's last fence too early where it gathers in a tree,
# as it does for some fences by default ("mixed"). Its message then reaches a rank that still waits
# for the first fence and has no handler for it: SIGSEGV at nil. Of four ranks on two busy nodes
# that begin within 0.3 s, 22 of 50 starts died with a tree, 2 of 50 by default, none of 170 with a
# ring.
MPI_CONF = "PMIxCollFence=ring\n"


def slurm_conf(layout: Layout) -> str:
    """Write slurm.conf."""
    return _SLURM_CONF.format(
        head=HEAD,
        dir=layout.dir,
        port=layout.controller_port,
        dbd_port=layout.dbd_port,
        first_job_id=layout.first_job_id,
        munge=layout.munge_socket,
        nodes="\n".join(_node_line(layout, node) for node in NODES),
    )


def _node_line(layout: Layout, node: str) -> str:
    return (
        f"NodeName={node} NodeHostname={node} NodeAddr={node_address(node)}"
        f" Port={layout.node_port(node)} CPUs={CPUS_PER_NODE} Sockets=1"
        f" CoresPerSocket={CPUS_PER_NODE} ThreadsPerCore=1 RealMemory={NODE_MEMORY_MB}"
        f" Gres=gpu:h200:{GPUS_PER_NODE} State=UNKNOWN"
    )


def slurmdbd_conf(layout: Layout) -> str:
    """Write slurmdbd.conf, which Slurm wants unreadable to others."""
    return _SLURMDBD_CONF.format(
        head=HEAD, dir=layout.dir, dbd_port=layout.dbd_port, munge=layout.munge_socket
    )


def gres_conf(layout: Layout) -> str:
    """Write gres.conf: each GPU is a device file that `up` makes."""
    gpus = f"{layout.dir}/nvidia[0-{GPUS_PER_NODE - 1}]"
    return f"NodeName={','.join(NODES)} Name=gpu Type=h200 File={gpus}\n"


def hosts(host_name: str) -> str:
    """Write the /etc/hosts that each daemon sees.

    Args:
        host_name: The machine's own name, which the place of submission has.
    """
    lines = [f"127.0.0.1 localhost {HEAD} {host_name}"]
    lines += [f"{node_address(node)} {node}" for node in NODES]
    return "\n".join(lines) + "\n"
