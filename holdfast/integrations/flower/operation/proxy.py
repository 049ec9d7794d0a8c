"""The one door of a federation: an nginx configuration that lets through what nodes need, and nothing else.

In Flower 1.41 the Fleet, Control and Runtime APIs share one port, and node authentication guards the Fleet API only:
whoever reaches the port registers nodes and runs apps of his own. So the SuperLink listens on a loopback address, and
the proxy in front of it knows ten paths, those that a registered SuperNode calls. Each is written out and is handed on
as it is written here: what a stranger made of it (other letters, doubled slashes, dots, escapes, a query) is refused,
and never reaches a parser that may read it otherwise than nginx does.
"""

from __future__ import annotations

import os
from pathlib import Path

#: What a SuperNode whose key is registered calls (``flwr.supernode.fleet_http_connection``). Left out are the two that
#: only a SuperNode without a key needs, ``register-node`` and ``unregister-node``.
FLEET_METHODS = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "pull-object",
    "push-object",
    "confirm-message-received",
)
#: Connections of one address at a time; a SuperNode has a handful, and an organisation's nodes may share an address.
_CONNECTIONS = 256
#: Flower cuts arrays into pieces of 5 MB, each an object and a request of its own.
_LARGEST_BODY = 16 * 2**20

_FILE = """# Written by `holdfast federation init`: the way in for nodes, and the only one.
# `holdfast federation serve` starts it; an nginx that runs already can include the server block.
{user}worker_processes 1;
pid {scratch}/nginx.pid;
error_log {scratch}/error.log warn;
events {{ worker_connections 2048; }}
http {{
    server_tokens off;
    access_log {scratch}/access.log;
    client_body_temp_path {scratch}/body;
    proxy_temp_path {scratch}/proxy;
    fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi;
    scgi_temp_path {scratch}/scgi;
    limit_conn_zone $binary_remote_addr zone=addresses:10m;

    upstream superlink {{
        server {upstream};
        keepalive 16;
    }}
    server {{
        listen {listen} ssl;
        ssl_certificate {keys}/superlink.crt;
        ssl_certificate_key {keys}/superlink.key;
        ssl_protocols TLSv1.2 TLSv1.3;

        limit_conn addresses {connections};
        client_max_body_size {largest};
        client_header_timeout 20s;
        client_body_timeout 60s;
        send_timeout 60s;
        large_client_header_buffers 4 8k;

        # A path is as it is written below, letter by letter, and carries no query.
        if ($request_uri != $uri) {{ return 404; }}
        if ($request_method != POST) {{ return 404; }}
        location / {{ return 404; }}

        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $host;
        proxy_set_header X-Forwarded-For $remote_addr;
        proxy_set_header X-Forwarded-Proto https;
        proxy_redirect off;
        proxy_read_timeout 120s;
        proxy_ssl_verify on;
        proxy_ssl_name {name};
        proxy_ssl_trusted_certificate {keys}/ca.crt;
{locations}
    }}
}}
"""
_LOCATION = "        location = /v1/fleet/{method} {{ proxy_pass https://superlink/v1/fleet/{method}; }}"


def proxy_file(folder: Path, *, listen: str, upstream: str, name: str) -> str:
    """The configuration of nginx.

    Args:
        folder: of the federation, absolute; certificates are in ``keys``, and nginx writes below ``proxy``.
        listen: address and port that nodes reach, ``0.0.0.0:8443``.
        upstream: address and port of the SuperLink, a loopback address.
        name: one of the names in the SuperLink's certificate.
    """
    # Where root starts nginx, its worker becomes nobody, who may not enter the folder.
    user = "user root;\n" if os.getuid() == 0 else ""
    return _FILE.format(
        user=user,
        scratch=folder / "proxy",
        keys=folder / "keys",
        listen=listen,
        upstream=upstream,
        name=name,
        connections=_CONNECTIONS,
        largest=_LARGEST_BODY,
        locations="\n".join(_LOCATION.format(method=method) for method in FLEET_METHODS),
    )
