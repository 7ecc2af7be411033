"""Signed ZIP files: a JSON manifest with the SHA-256 hash of each other file, and its Ed25519 signature."""

import hashlib
import json
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ...errors import InvalidInput, MissingLibrary, Unavailable
from ..store.atomic_files import expand_path, read_regular_file

SIGNATURE = "signature.json"
_KEY_BYTES = 32
_LARGEST_KEY = 1 << 14  # bytes of a key file


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """Return the JSON text of a document to sign. The order of keys in the document does not change the bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), default=str).encode()


def read_private_key(path: str | Path) -> bytes:
    """Read an Ed25519 private key from a file, and return the 32 bytes of the key.

    The file is a PEM file of `openssl genpkey -algorithm ed25519` without a password, or contains the 32 bytes.

    Raises:
        InvalidInput: if the file does not contain an Ed25519 private key.
        Unavailable: if the file cannot be read.
        MissingLibrary: if cryptography is not installed.
    """
    _ed25519()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        content = read_regular_file(expand_path(path), _LARGEST_KEY)
    except OSError as error:
        raise Unavailable(f"could not read the key {path} ({error.strerror or error})") from error
    except ValueError as error:
        raise InvalidInput(f"could not read a private key from {path}: {error}") from error
    if len(content) == _KEY_BYTES:
        return content
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"expected a private key as a PEM file without a password, got {path}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(
            f"expected an Ed25519 key (openssl genpkey -algorithm ed25519), got a key of another type in {path}"
        )
    return key.private_bytes_raw()


def sign(text: bytes, key: bytes) -> dict[str, str]:
    """Sign a text, and return the content of `signature.json`: algorithm, public key and signature (hexadecimal)."""
    private = _ed25519().Ed25519PrivateKey.from_private_bytes(key)
    public = private.public_key().public_bytes_raw().hex()
    return {"algorithm": "ed25519", "public_key": public, "signature": private.sign(text).hex()}


def check_signature(text: bytes, stated: Mapping[str, Any], key: str) -> None:
    """Check the signature of a document.

    Args:
        text: the signed document.
        stated: content of `signature.json`.
        key: public key that must have signed the document, 64 hexadecimal digits. "" accepts any key.

    Raises:
        InvalidInput: if a different key signed the document, or if the document was changed after signing.
    """
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature

    if key and stated["public_key"] != key.strip().lower():
        raise InvalidInput(
            f"expected the export to be signed by {key[:16]}..., got {str(stated['public_key'])[:16]}..."
        )
    try:
        public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(stated["public_key"]))
        public.verify(bytes.fromhex(stated["signature"]), text)
    except (InvalidSignature, ValueError) as error:
        raise InvalidInput("the manifest was changed after it was signed") from error


def check_files(archive: zipfile.ZipFile, files: Mapping[str, str], more: Collection[str]) -> None:
    """Check that an archive contains exactly the expected files.

    Args:
        archive: the archive.
        files: expected SHA-256 hash of each file in the manifest, by name.
        more: names of the other files of the archive, such as the manifest.

    Raises:
        InvalidInput: if a file is missing, unexpected, duplicated, or has a different hash.
    """
    there = archive.namelist()
    if len(there) != len(set(there)):  # unpacking could choose a different duplicate
        raise InvalidInput("the archive contains two files with the same name")
    if differing := sorted(set(there) ^ {*files, *more}):
        raise InvalidInput(
            f"expected the archive to contain exactly the files of the manifest, but {differing[0][:100]!r} is in only "
            "one of the two"
        )
    for name, digest in files.items():
        hashed = hashlib.sha256()
        with archive.open(name) as file:
            while chunk := file.read(1 << 20):
                hashed.update(chunk)
        if hashed.hexdigest() != digest:
            raise InvalidInput(f"{name} was changed after the archive was made")


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingLibrary("cryptography", "") from error
    return ed25519
