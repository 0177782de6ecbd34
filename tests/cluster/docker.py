"""The Docker of this machine: installed and started where need be, and asked.

A machine without an init (a container, a plain virtual machine of a CI) has nobody to start dockerd: then it is started
here, and left running for whoever comes next. What an earlier one left behind, killed in the midst, does not hinder it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from cluster.binaries import HERE, Say, root
from millrace.clock import Deadline, SystemClock
from millrace.errors import ExitCode, MillraceError

_START_SECONDS = 240.0
_RUN = Path("/var/run")
_CAP_SYS_RESOURCE = 24
# kubelet, containerd and systemd of each node hold many; the kernel's 128 are used up by about two nodes
_SYSCTLS = {"fs/inotify/max_user_instances": 1024, "fs/inotify/max_user_watches": 1_048_576}


def docker(*arguments: str, stdin: IO[bytes] | None = None, seconds: float = 1800.0) -> str:
    """What `docker ...` prints. Raises MillraceError with the end of what it said, if it fails."""
    done = subprocess.run(
        ["docker", *arguments],
        stdin=stdin or subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise MillraceError(f"`docker {' '.join(arguments)}` failed:\n{said}", code=ExitCode.SETUP)
    return done.stdout.strip()


def answers() -> bool:
    """Whether a daemon is there for this user."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def has_image(name: str) -> bool:
    return (
        subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode == 0
    )


def pulled(name: str, say: Say) -> bool:
    """Whether the image is there, after it was tried to be pulled."""
    if has_image(name):
        return True
    say(f"pulling {name}")
    return subprocess.run(["docker", "pull", "-q", name], capture_output=True, check=False).returncode == 0


def ensure(say: Say) -> None:
    """A daemon that answers. Raises MillraceError (SETUP) with what is to be done where this user can't do it."""
    if answers():
        return
    if shutil.which("dockerd") is None:
        apt_install(["docker.io", "containerd", "runc", "iptables"], say)
    say("starting Docker")
    if Path("/run/systemd/system").is_dir():
        _as_root(["systemctl", "start", "docker"])
    elif os.geteuid() == 0:
        _start_daemon()
    else:
        raise MillraceError(
            "Docker does not run, and only root can start it here",
            remedy="start it (`sudo dockerd &`) and let this user use it (`sudo usermod -aG docker $USER`)",
            code=ExitCode.SETUP,
        )
    _await_daemon()
    _raise_sysctls()


def apt_install(packages: Sequence[str], say: Say) -> None:
    """Debian packages. Raises MillraceError (SETUP) where there is no apt, or no right to use it."""
    say(f"apt-get install {' '.join(packages)}")
    wanted = f"install {', '.join(packages)}"
    if shutil.which("apt-get") is None:
        raise MillraceError("this machine lacks packages", remedy=wanted, code=ExitCode.SETUP)
    with contextlib.suppress(MillraceError):  # lists that are old will often do
        _as_root(["apt-get", "update", "-q"])
    _as_root(
        [
            *("env", "DEBIAN_FRONTEND=noninteractive"),
            *("apt-get", "install", "-y", "-q", "--no-install-recommends", *packages),
        ]
    )


def _as_root(command: Sequence[str]) -> None:
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if sudo and shutil.which("sudo") is None:
        raise MillraceError(f"`{' '.join(command)}` is for root", code=ExitCode.SETUP)
    done = subprocess.run([*sudo, *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise MillraceError(f"`{' '.join(command)}` failed:\n{said}", code=ExitCode.SETUP)


def _start_daemon() -> None:
    for pid_file, program in (
        (_RUN / "docker.pid", "dockerd"),
        (_RUN / "docker" / "containerd" / "containerd.pid", "containerd"),
    ):
        _forget_the_dead(pid_file, program)
    root().mkdir(parents=True, exist_ok=True)
    log = root() / "dockerd.log"
    command = ["dockerd"]
    if not _has_capability(_CAP_SYS_RESOURCE):
        # a copy of our own: dockerd outlives the folder that it was started from
        runtime = root() / "runc-less"
        shutil.copy(HERE / "runc-less", runtime)
        command += [f"--add-runtime=runc-less={runtime}", "--default-runtime=runc-less"]
    with log.open("ab") as stream:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
        )


def _forget_the_dead(pid_file: Path, program: str) -> None:
    """Remove a pid file if its process is no such program: dockerd only looks whether that number is in use."""
    try:
        pid = int(pid_file.read_text())
        alive = Path(f"/proc/{pid}/comm").read_text().strip() == program
    except (OSError, ValueError):
        alive = False
    if not alive:
        pid_file.unlink(missing_ok=True)


def _await_daemon() -> None:
    clock = SystemClock()
    deadline = Deadline.after(clock, _START_SECONDS)
    while not answers():
        if deadline.expired():
            log = root() / "dockerd.log"
            said = log.read_text(errors="replace").splitlines()[-8:] if log.exists() else []
            raise MillraceError(
                f"Docker does not answer {_START_SECONDS:.0f} s after its start:\n" + "\n".join(said),
                where=str(log),
                code=ExitCode.SETUP,
            )
        clock.sleep(0.2)


def _has_capability(number: int) -> bool:
    bounds = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapBnd")
    )
    return bool(int(bounds.split()[1], 16) >> number & 1)


def _raise_sysctls() -> None:
    for name, least in _SYSCTLS.items():
        setting = Path("/proc/sys") / name
        with contextlib.suppress(OSError):
            if int(setting.read_text()) < least:
                setting.write_text(str(least))
