"""How the operator's own programs speak to the SuperLink: its address, its certificate, and two secrets.

The token opens the Control API (register a node, start a run), the secret hands out a run's ServerApp. A rehearsal's
SuperLink has neither: it lives as long as its command, on an insecure loopback port.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.errors import FederationError

if TYPE_CHECKING:
    import httpx

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


@dataclass(frozen=True)
class Access:
    """How to speak to a SuperLink of this machine.

    Attributes:
        address: host and port.
        certificate: of the authority that signed the SuperLink's, PEM; None where it has none.
        token: opens the Control API.
        secret: of those who may take over a task.
    """

    address: str
    certificate: bytes | None = None
    token: str | None = None
    secret: bytes | None = None

    @contextlib.contextmanager
    def control(self) -> Iterator[Any]:
        """A client of the Control API.

        Raises:
            FederationError: if the SuperLink can't be reached, or refuses.
        """
        import httpx  # noqa: PLC0415
        from flwr.supercore.control import ControlHttpClient  # noqa: PLC0415

        bearer = [] if self.token is None else [_Bearer(self.token)]
        client = ControlHttpClient.from_server_address(
            self.address, self.certificate is None, self.certificate, [_version("flwr CLI"), *bearer]
        )
        try:
            yield client
        except httpx.TransportError as error:
            raise FederationError(f"there is no SuperLink at {self.address} ({error}); start it first") from error
        except httpx.HTTPStatusError as error:
            raise FederationError(f"the SuperLink at {self.address} refuses: {error.response.text[:300]}") from error
        finally:
            client.close()

    def runtime(self) -> Any:
        """A client of the Runtime API, which hands out tasks."""
        from flwr.supercore.interceptors.http.superexec_auth import SuperExecAuthHttpInterceptor  # noqa: PLC0415
        from flwr.supercore.runtime import RuntimeHttpClient  # noqa: PLC0415

        interceptors: list[Any] = [_version("SuperExec")]
        if self.secret is not None:
            signed = SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods=[_ACQUIRE])
            interceptors.append(signed)
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.certificate is None,
            root_certificates=self.certificate,
            interceptors=interceptors,
        )


class _Bearer:
    """Shows a token with every request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def intercept(self, context: Any, call_next: Any) -> httpx.Response:
        context.request.headers["authorization"] = f"Bearer {self._token}"
        answer: httpx.Response = call_next(context)
        return answer


def _version(component: str) -> Any:
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor  # noqa: PLC0415

    return RuntimeVersionHttpInterceptor(component_name=component)
