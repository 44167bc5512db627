"""Ascend's error codes for a wrong ATC command line, and the block ATC prints when it fails.

Programs around CANN search ATC's output for these codes, so the codes and the first line of each text follow the error code pages of
the ATC user guide (GE, `error_codes`).
"""

from __future__ import annotations

from anycann.support.errors import AnyCANNError, DeviceError, InternalError, ModelError, UnsupportedError, UsageError
from anycann.support.records import dataclass

STARTED = "ATC start working now, please wait for a moment."
SUCCEEDED = "ATC run success, welcome to the next use."
FAILED = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"


@dataclass(frozen=True)
class ErrorCode:
    """One code: the text with named fields, and what the user can do."""

    code: str
    text: str
    solution: str


_SHAPE_FORM = "Write input_name1:n1,c1,h1,w1;input_name2:n2,c2,h2,w2 with the model's input names and integers."
_DYNAMIC_FORM = "For a static shape remove the dynamic option; otherwise write -1 for the sizes that change in --input_shape."

CODES = {
    row.code: row
    for row in (
        ErrorCode("E10001", "Value {value} for parameter {parameter} is invalid. Reason: {reason}", "Try again with a valid argument."),
        ErrorCode(
            "E10002",
            "Value {shape} for parameter --input_shape is invalid. Reason: {reason}. The value must be formatted as {sample}.",
            _SHAPE_FORM,
        ),
        ErrorCode("E10004", "Value for --{parameter} is empty.", "Set a valid parameter value."),
        ErrorCode(
            "E10005",
            "Value {value} for parameter --{parameter} is invalid. The value must be either true or false.",
            "Set true or false.",
        ),
        ErrorCode("E10006", "Value {value} for parameter --{parameter} is invalid. The value must be either 1 or 0.", "Set 1 or 0."),
        ErrorCode("E10007", "--{parameter} is required. The value must be {support}.", "Set a valid parameter value."),
        ErrorCode(
            "E10009",
            "--dynamic_batch_size, --dynamic_image_size, --input_shape_range, and --dynamic_dims are mutually exclusive.",
            "Keep one of these options, or none for a static shape.",
        ),
        ErrorCode(
            "E10010",
            "Value {loglevel} for parameter --log is invalid.",
            "Select the value from debug, info, warning, error, and null.",
        ),
        ErrorCode(
            "E10011",
            "Value {shape} for parameter --input_shape is invalid. Shape values must be positive integers. "
            "The error value in the shape is {result}.",
            _DYNAMIC_FORM,
        ),
        ErrorCode("E10014", "Value {value} for parameter --{parameter} is invalid.", 'Run "atc --help" to view the usage.'),
        ErrorCode(
            "E10016",
            "Opname {opname} specified in --{parameter} is not found in the model. Confirm whether this node name exists, "
            "or the node is not split with the specified delimiter ';'.",
            "Name a node of the model (`anycann show` lists them).",
        ),
        ErrorCode(
            "E10018",
            "Value {shape} for shape {index} is invalid. When --dynamic_batch_size is included, only batch size N can be -1 "
            "in --input_shape.",
            "Give every other axis a size, or use --dynamic_dims.",
        ),
        ErrorCode(
            "E10019",
            "When --dynamic_image_size is included, only the height and width axes can be -1 in --input_shape.",
            "Give every other axis a size, or use --dynamic_dims.",
        ),
        ErrorCode(
            "E10020",
            "Value {value} for parameter --dynamic_image_size is invalid.",
            'Write "height1,width1;height2,width2": two sizes in each profile.',
        ),
        ErrorCode(
            "E10022", "Path {filename} for parameter --{parameter} does not include the file name.", "Add the file name to the path."
        ),
        ErrorCode(
            "E10031",
            "--dynamic_batch_size is included, but none of the nodes specified in --input_shape has a batch size equaling -1.",
            _DYNAMIC_FORM,
        ),
        ErrorCode("E10032", "Parse json file {file_name} failed. Reason: {reason}.", "Check whether the json file is valid."),
        ErrorCode(
            "E10035",
            "--dynamic_batch_size, --dynamic_image_size, or --dynamic_dims has {count} profiles, which is less than the minimum {minimum}.",
            "Write at least the minimum number of profiles.",
        ),
        ErrorCode(
            "E10036",
            "--dynamic_batch_size, --dynamic_image_size, or --dynamic_dims has {count} profiles, which is greater than the maximum "
            "{maximum}.",
            "Write at most the maximum number of profiles.",
        ),
        ErrorCode(
            "E10037",
            "The profiles configured in --dynamic_batch_size, --dynamic_image_size, or --dynamic_dims have inconsistent dimension counts. "
            "A profile has {first} dimensions while another has {second} dimensions.",
            "Give all profiles the same number of sizes.",
        ),
        ErrorCode("E10038", "Dimension size {dim} is invalid. The value must be greater than 0.", "Set positive sizes in each profile."),
        ErrorCode(
            "E10039",
            "The --dynamic_batch_size, --dynamic_image_size, or --dynamic_dims argument have duplicate profiles.",
            "Remove the repeated profile.",
        ),
        ErrorCode(
            "E10040",
            "As the --dynamic_batch_size, --dynamic_image_size, or --dynamic_dims argument is included, the corresponding nodes "
            "specified in --input_shape must have -1 axes and cannot have '~'.",
            _DYNAMIC_FORM,
        ),
        ErrorCode(
            "E10041",
            "Failed to load the model from {parameter}.",
            "Check that the file is complete and that --framework matches it.",
        ),
        ErrorCode(
            "E10045",
            "The number of -1 axes in the --input_shape argument exceeds the dimension count per profile in --dynamic_dims.",
            "Write one size in each profile for every -1, in the order of --input_shape.",
        ),
        ErrorCode(
            "E10046",
            "The total number of -1 axes in the --input_shape argument differs from the dimension count per profile in --dynamic_dims.",
            "Write one size in each profile for every -1, in the order of --input_shape.",
        ),
        ErrorCode("E10047", "--{first} and --{second} are mutually exclusive.", "Remove either of them and try again."),
        ErrorCode(
            "E10048",
            "Value {shape_range} for parameter --input_shape_range is invalid. Reason: {reason}. The value must be formatted as {sample}.",
            "Try again with a valid argument.",
        ),
        ErrorCode(
            "E10054",
            "The required parameter {parameter} for ATC is empty. Another possible reason is that the values of some parameters are not "
            'enclosed by quotation marks ("").',
            "Check whether the command line parameter format is correct.",
        ),
        ErrorCode("E10055", "The operation is not supported. Reason: {reason}.", "Leave the option out, or use what the text names."),
        ErrorCode(
            "E10056", "Cannot configure both parameters {first} and {second} simultaneously.", "Remove either of them and try again."
        ),
        ErrorCode("E10410", "File {path} does not exist.", "Try again with a valid file path."),
    )
}


class AtcUsageError(UsageError):
    """A wrong ATC command line, with Ascend's code."""

    def __init__(self, code: str, **fields: object):
        self.code = CODES[code]
        super().__init__(self.code.text.format(**fields))


class AtcUnsupportedError(UnsupportedError):
    """A valid ATC command line that asks for something AnyCANN does not do (code E10055)."""

    def __init__(self, reason: str):
        self.code = CODES["E10055"]
        super().__init__(self.code.text.format(reason=reason.rstrip(".")))


CLASS_CODES: dict[type[AnyCANNError], tuple[str, str]] = {
    UnsupportedError: ("E10055", "Change the model, or ask for the missing part in an issue."),
    ModelError: ("E10041", "Check that the model file is complete, and of the kind that --framework names."),
    UsageError: ("E10060", 'Run "atc --help" to view the usage.'),
    DeviceError: ("E10059", "Free memory or disk, or correct the permissions, and try again."),
    InternalError: ("E19999", "This is a fault of AnyCANN: please report it with the model."),
}


def error_block(error: AnyCANNError) -> str:
    """The lines ATC prints after its failure line: code and text, solution, and what was being done, innermost first."""
    code, solution = _code_and_solution(error)
    notes = getattr(error, "__notes__", ())
    lines = [f"{code}: {error}", f"        Solution: {solution}"]
    if notes:
        lines += ["        TraceBack (most recent call last):", *(f"        {note}" for note in notes)]
    return "\n".join(lines)


def _code_and_solution(error: AnyCANNError) -> tuple[str, str]:
    row = getattr(error, "code", None)
    if isinstance(row, ErrorCode):
        return row.code, row.solution
    return next((found for kind, found in CLASS_CODES.items() if isinstance(error, kind)), CLASS_CODES[InternalError])
