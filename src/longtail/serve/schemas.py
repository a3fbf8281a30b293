"""The bodies of requests and answers, from which FastAPI makes the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    model_validator,
)

from longtail.checks import has_surrogate

MAX_TOP_K = 200
# Labels with reasons in a request: an encoder may take a second or two for each.
MAX_EXPLAINED = 10
# Pydantic reports every unknown field: those of a large body would take gigabytes.
MAX_FIELDS = 20
Group = Literal["head", "medium", "tail", "unseen"]


def _check_text(text: str) -> str:
    if has_surrogate(text):
        raise ValueError("half of a surrogate pair, which is not a character")
    return text


CHECK = AfterValidator(_check_text)  # after the limits, whose messages then speak of characters
Text = Annotated[str, CHECK]
Id = Annotated[str, StringConstraints(max_length=1000), CHECK]
Prefix = Annotated[str, StringConstraints(min_length=1, max_length=1000), CHECK]
Label = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S"), CHECK]
Written = Annotated[str, StringConstraints(min_length=1, pattern=r"\S"), CHECK]


class Strict(BaseModel):
    """A body without unknown fields, whose values are not converted to other types."""

    # In Python's regexes a blank is the same as for the readers of training data.
    model_config = ConfigDict(extra="forbid", strict=True, regex_engine="python-re")

    @model_validator(mode="before")
    @classmethod
    def _check_size(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            raise ValueError(f"an object of {len(value):,} fields")
        return value


class LabelSearch(BaseModel):
    """The query of GET /models/{name}/labels."""

    model_config = ConfigDict(extra="forbid")

    search: str = Field("", max_length=1000)
    offset: int = Field(0, ge=0, le=2**31)
    limit: int = Field(50, ge=1, le=1000)


class Document(Strict):
    text: Text = Field(examples=["Robusta coffee exports rose 4 pct"])
    id: Id | None = Field(None, examples=["a"])


class PredictRequest(Strict):
    # Stop at the first wrong document: the errors of a million would take gigabytes.
    documents: Annotated[list[Document], FailFast()] = Field(
        min_length=1, examples=[[{"text": "Robusta coffee exports rose 4 pct"}]]
    )
    top_k: int | None = Field(
        None,
        ge=1,
        le=MAX_TOP_K,
        description="Also return this many of the best labels, predicted or not.",
    )
    reasons: bool = Field(
        False,
        description=f"Return the words for and against the {MAX_EXPLAINED} best labels; of several "
        "documents, equally many each.",
    )
    reasons_for: list[Label] | None = Field(
        None,
        min_length=1,
        max_length=MAX_EXPLAINED,
        description="Return the words for and against these of the labels returned instead.",
    )


class Reason(BaseModel):
    start: int = Field(description="Position in the text, in Unicode code points.")
    end: int
    word: str = Field(examples=["coffee"])
    value: float


class PredictedLabel(BaseModel):
    label: str = Field(examples=["coffee"])
    score: float
    probability: float | None
    threshold: float | None
    group: Group
    predicted: bool
    reasons: list[Reason] | None


class PredictedDocument(BaseModel):
    id: str | None
    labels: list[PredictedLabel]


class PredictAnswer(BaseModel):
    model: str
    documents: list[PredictedDocument]


class Correction(Strict):
    text: Written = Field(examples=["Robusta coffee exports rose 4 pct"])
    labels: list[Label] = Field(max_length=1000, examples=[["coffee"]])
    id: Prefix | None = Field(
        None, description="Prefix of the id in the file; a unique suffix is added."
    )
    predicted: list[Label] | None = Field(None, max_length=1000)


class Stored(BaseModel):
    stored: bool
    id: str = Field(description="The id of the line in the file.")
    new_labels: list[str] = Field(description="Labels that the model does not know.")


class Error(BaseModel):
    error: str = Field(description="What was expected, what came, and what to do.")


class Health(BaseModel):
    status: Literal["ok"]
    version: str


class Ready(BaseModel):
    status: Literal["ready", "stopping"]
    models: list[str]


class Model(BaseModel):
    name: str
    title: str
    n_labels: int
    n_training_documents: int
    scale: Literal["logit", "margin"]


class Models(BaseModel):
    models: list[Model]


class HeldOut(BaseModel):
    micro_f1: float | None
    macro_f1: float | None
    n_labels: int | None


class RequestLimits(BaseModel):
    max_documents: int
    max_text_length: int
    max_body_bytes: int


class ModelDetails(Model):
    card: str
    card_html: str
    held_out: dict[Literal["all", "head", "medium", "tail"], HeldOut]
    examples: list[str]
    limits: RequestLimits


class LabelFacts(BaseModel):
    label: str
    group: Group
    training_documents: int
    threshold: float | None
    precision: float | None
    recall: float | None


class Labels(BaseModel):
    total: int
    offset: int
    labels: list[LabelFacts]
