"""A certificate authority and server certificates for tests, made anew in a folder and valid for a day."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """PEM files of one server: its chain and its key."""

    cert_file: Path
    key_file: Path

    def context(self) -> ssl.SSLContext:
        """A server-side context with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file)
        return context


class Authority:
    """An authority of its own; clients that trust ``ca_file`` trust what it signs."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_CA_USAGE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str, stem: str = "server", expired: bool = False) -> ServerCertificate:
        """A certificate for ``names``; localhost and 127.0.0.1 and ::1 when none is given."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = names or ("localhost", "127.0.0.1", "::1")
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(subject, self._name, key, expired=expired)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
            )
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        made = ServerCertificate(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        made.cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        made.key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        made.key_file.chmod(0o600)
        return made

    def client_context(self) -> ssl.SSLContext:
        """A client-side context that trusts this authority alone and checks host names."""
        return ssl.create_default_context(cafile=str(self.ca_file))


_CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    end = now - timedelta(hours=1) if expired else now + timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(end)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
