"""Servers of this machine for bench/remote, bench/remote-others and bench/splits."""
import contextlib
import pathlib
import shutil
import socket
import struct
import subprocess
import time

from command_line import say

# Slots of a cluster of Redis servers.
SLOTS = 16384
CASSANDRA = pathlib.Path(__file__).resolve().parent.parent / "scripts/cassandra"

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


@contextlib.contextmanager
def redis_cluster(program, scratch, masters=3):
    """Runs Redis servers that share the slots of a cluster. Yields their ports."""
    ports, buses = [], []
    with contextlib.ExitStack() as stack:
        for number in range(masters):
            folder = scratch / f"master{number}"
            folder.mkdir()
            ports.append(free_port())
            buses.append(free_port())
            words = [program, "--port", ports[-1], "--bind", "127.0.0.1", "--save", "", "--dir", folder]
            words += ["--cluster-enabled", "yes", "--cluster-port", buses[-1], "--cluster-config-file", "nodes.conf"]
            stack.enter_context(serving(words, folder, ports[-1]))
            first, end = (SLOTS * part // masters for part in (number, number + 1))
            ask_redis(ports[-1], f"CLUSTER ADDSLOTSRANGE {first} {end - 1}")
            if number > 0:
                ask_redis(ports[-1], f"CLUSTER MEET 127.0.0.1 {ports[0]} {buses[0]}")
        until = time.monotonic() + 60
        whole = f"cluster_known_nodes:{masters}"
        while not all({"cluster_state:ok", whole} <= set(ask_redis(port, "CLUSTER INFO").split()) for port in ports):
            if time.monotonic() > until:
                raise SystemExit("error: the cluster of Redis servers is not whole within a minute")
            time.sleep(0.05)
        yield ports


def ask_redis(port, words):
    """Sends a command with a short answer, and returns the answer."""
    with socket.create_connection(("127.0.0.1", port)) as server:
        server.sendall(f"{words}\r\n".encode())
        answer = server.recv(1 << 16).decode()
    if answer.startswith("-"):
        raise SystemExit(f"error: redis-server answers {words} with {answer}")
    return answer


def can_run_cassandra():
    """Returns whether Cassandra can be started, or says what is missing."""
    fetched = subprocess.run([CASSANDRA, "--fetch"], stderr=subprocess.PIPE, text=True, check=False)
    if fetched.returncode != 0:
        say(f"{fetched.stderr.strip()}: the tables of Cassandra are left out")
    return fetched.returncode == 0


@contextlib.contextmanager
def cassandra(scratch):
    """Runs a node of Cassandra with the keyspace `bench`. Yields the port."""
    port = free_port()
    folder = scratch / "cassandra"
    folder.mkdir()
    with serving([CASSANDRA, folder, "--port", port, "--storage-port", free_port()], folder, port):
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        ask_cassandra(port, f"CREATE KEYSPACE bench WITH replication = {replication}")
        yield port


def ask_cassandra(port, statement):
    """Executes a statement, by version 4 of Cassandra's protocol."""
    words = statement.encode()
    startup = b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0"
    with socket.create_connection(("127.0.0.1", port)) as server, server.makefile("rb") as answers:
        for code, body in [(1, startup), (7, struct.pack(">i", len(words)) + words + b"\0\1\0")]:
            server.sendall(struct.pack(">BBHBi", 4, 0, 0, code, len(body)) + body)
            _, _, _, code, length = struct.unpack(">BBHBi", answers.read(9))
            body = answers.read(length)
            if code == 0:
                raise SystemExit(f"error: Cassandra answers {body[6:].decode(errors='replace')}")
