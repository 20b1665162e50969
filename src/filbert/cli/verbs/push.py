"""filbert push."""

from __future__ import annotations


def push(
    model: str,
    repo: str,
    /,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
    dry_run: bool = False,
) -> None:
    """Upload a model folder to the Hugging Face Hub; its address is the last line on stdout.

    Parameters
    ----------
    model:
        a model folder, such as runs/toxic/model.
    repo:
        owner/name on the Hub; created if missing.
    private:
        create a private repository.
    revision:
        a branch, created if missing; the main branch by default.
    message:
        message of the commit.
    dry_run:
        print the files without uploading them.
    """
    from pathlib import Path

    from filbert.checkpoints import upload

    upload.check_repo(repo)
    folder = Path(model).expanduser()
    if dry_run:
        _print_files(upload.files_to_push(folder))
        print(f"dry run: nothing was sent to {repo}")
        return
    url = upload.push(
        folder,
        repo,
        private=private,
        revision=revision,
        message=message,
        announce=_print_files,
    )
    print(url)


def _print_files(files: dict[str, int]) -> None:
    for name, size in files.items():
        print(f"{size:>15,}  {name}")
    print(f"{sum(files.values()):>15,}  bytes in {len(files)} files", flush=True)
