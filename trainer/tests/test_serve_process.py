"""How a server starts and ends."""

import os
import signal
import socket
import subprocess
import sys
import time

from conftest import command
from serving import Server


def refused(*words):
    ended = subprocess.run(command("serve", *words), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 42 and ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


def test_a_folder_without_a_model_is_refused_in_one_sentence(tmp_path):
    assert str(tmp_path) in refused("--model", tmp_path)


def test_a_port_in_use_is_refused_in_one_sentence(model_dir):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in refused("--model", model_dir, "--port", port)


def test_sigterm_ends_it_at_once_with_nothing_on_standard_error(model_dir):
    with Server(model_dir) as server:
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        _, errors = server.process.communicate(timeout=10)
        assert (server.process.returncode, errors) == (0, "")
        assert time.monotonic() - started < 2


def test_it_ends_when_its_driver_is_killed(model_dir):
    script = "import subprocess, sys, os; p = subprocess.Popen([*sys.argv[1:], '--parent-pid', str(os.getpid())]); print(p.pid, flush=True); p.wait()"
    driver = subprocess.Popen([sys.executable, "-c", script, *command("serve", "--model", model_dir)], stdout=subprocess.PIPE, text=True)
    pid = int(driver.stdout.readline())
    assert "ready" in driver.stdout.readline()
    driver.kill()
    driver.wait()
    end = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
