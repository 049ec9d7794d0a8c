"""Certificates and keys for a federation of one's own: an authority, a certificate of the SuperLink, a key per node.

Flower's TLS needs a certificate that nodes trust; its node authentication needs the public key of every node that may
take part. An organisation with an authority of its own takes its certificates from there; for everybody else this is
the same as a page of openssl and ssh-keygen commands. Private keys are readable by their owner only.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError
from holdfast.integrations.flower.rehearsal.deployment import require_flower

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

_DAYS = 365


def make_authority(folder: Path | str, hosts: Sequence[str], days: int = _DAYS) -> None:
    """Write ``ca.crt``, and ``superlink.crt`` and ``superlink.key`` signed by it; the authority's own key is not kept.

    Args:
        folder: made where it is missing; must not hold such files yet.
        hosts: names and addresses under which nodes reach the SuperLink.
        days: until the certificates expire.

    Raises:
        ConfigError: if there is an authority already.
    """
    require_flower()
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    place = Path(folder)
    if (place / "ca.crt").exists():
        raise ConfigError(f"there is an authority at {place} already; nodes trust it, so use it or another folder")
    place.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    own, theirs = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "holdfast federation")])
    superlink = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hosts[0])])

    def certificate(subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        begun = x509.CertificateBuilder().subject_name(subject).issuer_name(authority).public_key(key)
        begun = begun.serial_number(x509.random_serial_number())
        until = now + datetime.timedelta(days=days)
        return begun.not_valid_before(now - datetime.timedelta(minutes=5)).not_valid_after(until)

    basic = x509.BasicConstraints(ca=True, path_length=0)
    root = certificate(authority, own.public_key()).add_extension(basic, critical=True).sign(own, hashes.SHA256())
    names = x509.SubjectAlternativeName([_name(host) for host in hosts])
    link = certificate(superlink, theirs.public_key()).add_extension(names, critical=False).sign(own, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = theirs.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(place / "superlink.key", private, 0o600)
    _write(place / "superlink.crt", link.public_bytes(pem), 0o644)
    _write(place / "ca.crt", root.public_bytes(pem), 0o644)


def make_node_key(file: Path | str) -> None:
    """Write a node's private key to `file`, and its public key, for the SuperLink, to the same name with ``.pub``.

    Raises:
        ConfigError: if there is a key already.
    """
    require_flower()
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    place = Path(file)
    if place.exists():
        raise ConfigError(f"there is a key at {place} already; a node keeps its key, or choose another name")
    place.parent.mkdir(parents=True, exist_ok=True)
    key, pem = ec.generate_private_key(ec.SECP384R1()), serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(place, private, 0o600)
    _write(place.with_name(f"{place.name}.pub"), public + b"\n", 0o644)


def _name(host: str) -> GeneralName:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(file: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        stream.write(content)
