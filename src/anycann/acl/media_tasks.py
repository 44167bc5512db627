"""Work on pictures in order with the tasks of a stream. What fails is told in their return codes, and where the stream is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from anycann.acl.errors import as_acl_error
from anycann.acl.media_pictures import PicDesc
from anycann.acl.process import PROCESS


def submit(stream: int, task: Callable[[], None], pictures: Iterable[PicDesc] = ()) -> None:
    """Run `task` on `stream`."""
    concerned = tuple(pictures)

    def run() -> None:
        try:
            task()
        except Exception as error:
            problem = as_acl_error(error)
            for picture in concerned:
                picture.ret_code = int(problem.code)
            raise problem from error
        for picture in concerned:
            picture.ret_code = 0

    PROCESS.stream(stream).submit(run)
