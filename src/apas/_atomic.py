"""Writing a file so that nobody ever sees half of it."""

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from apas.errors import InputError


@contextmanager
def refusing(before: str, after: str = ".") -> Iterator[None]:
    """Say in one sentence, around its reason, what the system does not do with a file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{before}: {error.strerror or error}{after}") from None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to a temporary file beside `path`, make it durable, then put it in place in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` in the same way."""
    write_parts(path, [content])


def write_parts(path: str | os.PathLike[str], parts: Iterable[bytes]) -> None:
    """Write what comes in parts in the same way; if one cannot be made, nothing is written."""
    target = Path(path)
    if target.exists() and not target.is_file():  # it would be replaced: by root, even /dev/null
        raise OSError(errno.EINVAL, "it is not a plain file", str(target))
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; give it the permissions that a plain open would have given
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def append_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Put `content` at the end of a journal, durably; whoever reads it knows how to tell a whole entry from a half."""
    with open(path, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Whether two names lead to one file, by whatever spelling or link; one that is not there yet, by its full name."""
    try:
        return os.path.samefile(first, second)
    except (OSError, ValueError):  # one is not there; or a name has a zero byte, which whoever opens it complains about
        pass
    try:
        names = [os.path.realpath(path) for path in (first, second)]
        if not any(map(os.path.exists, names)):  # on many disks, names that differ in case alone will be one file
            names = [name.casefold() for name in names]
        return names[0] == names[1]
    except (OSError, ValueError):
        return False
