"""A real Slurm on this machine: its own daemons, with configuration, state and keys in a folder of their own."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
CONFIG = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=2
NodeName=localhost CPUs=2 State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """What keeps a Slurm from being started here."""
    missing = [name for name in DAEMONS if shutil.which(name, path=path()) is None]
    if missing:
        return f"no Slurm here ({', '.join(missing)} not found): apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "Slurm's daemons are started as root"


def path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin"


@contextmanager
def running(folder: Path):
    """The path of its slurm.conf, which SLURM_CONF must name."""
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(parents=True)
    munge = folder / "munge"
    munge.chmod(0o700)
    (munge / "key").write_bytes(os.urandom(64))
    (munge / "key").chmod(0o600)
    conf = folder / "slurm.conf"
    conf.write_text(CONFIG.format(folder=folder, ports=free_ports(2)))
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": path()}
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    started = []
    try:
        start = [["munged", "--foreground", "--force", *(f"--{k}={munge / v}" for k, v in files.items())]]
        start += [["slurmctld", "-D"], ["slurmd", "-D", "-N", "localhost"]]
        for words in start:
            log = (folder / f"{words[0]}.out").open("wb")
            started.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True))
            log.close()
            if words[0] == "munged":
                wait_for(lambda: (munge / "socket").exists(), "munged")
        wait_for(lambda: "idle" in said(environment, "sinfo", "-h", "-o", "%T"), "Slurm")
        yield conf
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=30)


def said(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def wait_for(ready, what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what} did not come up"
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
