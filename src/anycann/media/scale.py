"""Cropping, scaling, pasting and framing in one step, between any two formats: what VPC does."""

from __future__ import annotations

from anycann.media.convert import ColourMatrix, Matrix, convert
from anycann.media.filters import Border, add_border
from anycann.media.formats import FORMATS
from anycann.media.picture import Picture, Region, View, new_picture
from anycann.media.resize import Interpolation, resize_plane
from anycann.support.errors import UsageError


def transfer(
    source: Picture,
    target: Picture,
    crop: Region | None = None,
    paste: Region | None = None,
    interpolation: Interpolation = Interpolation.BILINEAR,
    matrix: ColourMatrix = Matrix.BT601_WIDE,
) -> None:
    """Scale the region `crop` of `source` to the region `paste` of `target` (None: all of it); the rest of `target` stays as it is.

    Every plane is scaled by itself, then colours are converted where the formats differ. Regions that begin or end inside a chroma sample
    take the whole sample. Raises UsageError for regions outside the pictures.
    """
    crop, paste = crop or source.whole, paste or target.whole
    check_inside(crop, source, "crop")
    check_inside(paste, target, "paste")
    if source.format == target.format:
        scale(source.view(crop), target.view(paste), interpolation)
        return
    scaled = new_picture(source.format, paste.width, paste.height).view()
    scale(source.view(crop), scaled, interpolation)
    convert(scaled, target.view(paste), matrix)


def cut_and_frame(source: View, target: View, border: Border, interpolation: Interpolation, matrix: ColourMatrix) -> None:
    """Scale `source` to what `border` leaves of `target`, convert its colours, and put the border around it."""
    width, height = target.width - border.left - border.right, target.height - border.top - border.bottom
    scaled, inner = new_picture(source.format, width, height).view(), new_picture(target.format, width, height).view()
    scale(source, scaled, interpolation)
    convert(scaled, inner, matrix)
    add_border(inner, target, border)


def scale(source: View, target: View, interpolation: Interpolation) -> None:
    """Scale every plane by itself. The formats are alike."""
    if source.format.layout == "packed 422" and (source.width, source.height) != (target.width, target.height):
        _scale_packed_422(source, target, interpolation)
        return
    for plane, other in zip(source.planes, target.planes, strict=True):
        resize_plane(plane, other, interpolation)


def _scale_packed_422(source: View, target: View, interpolation: Interpolation) -> None:
    """Two pixels share a group of bytes: they are scaled as semi-planar 422."""
    apart, scaled = (new_picture(FORMATS[3], view.width, view.height).view() for view in (source, target))
    convert(source, apart)
    scale(apart, scaled, interpolation)
    convert(scaled, target)


def check_inside(region: Region, picture: Picture, role: str) -> None:
    """Raises UsageError unless `region` lies in `picture`."""
    inside = 0 <= region.left <= region.right < picture.width and 0 <= region.top <= region.bottom < picture.height
    if not inside:
        raise UsageError(
            f"the {role} region is left {region.left}, right {region.right}, top {region.top}, bottom {region.bottom}; accepted: a region "
            f"inside the {picture.width} x {picture.height} pixels of the picture"
        )
