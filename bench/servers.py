"""Servers of this machine for bench/remote and bench/remote-others."""
import contextlib
import shutil
import socket
import subprocess
import time

from command_line import say

NGINX = """daemon off; master_process off; pid nginx.pid; error_log error.log; events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000; sendfile on;
client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
server {{ listen 127.0.0.1:{port}; root {root}; }} }}
"""


def free_port():
    """Returns a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def serving(words, folder, port):
    """Runs a server until it is no longer needed."""
    with subprocess.Popen([str(word) for word in words], cwd=folder, stdout=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + 60
            while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
                if time.monotonic() > until or server.poll() is not None:
                    raise SystemExit(f"error: {words[0]} does not answer; its message is above")
                time.sleep(0.05)
            yield
        finally:
            server.terminate()


def installed(name):
    """Returns the path of a program, or says that it is missing."""
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if program is None:
        say(f"{name} is not installed: its tables are left out")
    return program


@contextlib.contextmanager
def nginx(program, folder, scratch):
    """Serves a folder by ranges. Yields the port."""
    port = free_port()
    (scratch / "nginx.conf").write_text(NGINX.format(port=port, root=folder))
    with serving([program, "-p", scratch, "-c", "nginx.conf", "-e", "error.log"], scratch, port):
        yield port


@contextlib.contextmanager
def redis(program, scratch):
    """Runs a Redis server that keeps nothing on disk. Yields the port."""
    port = free_port()
    with serving([program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", scratch], scratch, port):
        yield port
