"""Pushing a folder to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from remargin.errors import InputError, first_line
from remargin.model.folder import of_the_network


def check_push(name: str) -> None:
    """See, before any work is done, that a folder could be pushed: the name is one, and there is a token.

    Raises:
        InputError: if not.

    Example:
        >>> check_push("a name")
        Traceback (most recent call last):
        remargin.errors.InputError: 'a name' is no name of the Hugging Face hub; use OWNER/NAME
    """
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        raise InputError(f"{name!r} is no name of the Hugging Face hub", do="use OWNER/NAME") from None
    if constants.HF_HUB_OFFLINE:
        raise InputError("cannot push: HF_HUB_OFFLINE is set", do="unset it, or leave --push out")
    if huggingface_hub.get_token() is None:
        raise InputError(
            "cannot push: no token of the Hugging Face hub", do="log in (`hf auth login`), or set HF_TOKEN"
        )


def push_folder(folder: Path, name: str, private: bool = True) -> str:
    """Upload a folder as a model of the hub, which is made if it is not there. Returns its address.

    Args:
        folder: what to upload.
        name: OWNER/NAME.
        private: whether a model that is made now is private. One that is there stays what it is.

    Raises:
        InputError: if the hub cannot be reached or refuses. The folder is untouched.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi(library_name="remargin")
    try:
        repo = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo.repo_id, folder_path=folder, commit_message="Upload by remargin export")
    except Exception as error:
        if not isinstance(error, (HfHubHTTPError, HFValidationError, OSError)) and not of_the_network(error):
            raise
        do = f"{folder} is complete; push it again with `hf upload {name} {folder}`"
        raise InputError(f"could not be pushed to {name} ({first_line(error)})", file=folder, do=do) from None
    return str(repo)
