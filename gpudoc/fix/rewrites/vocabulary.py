"""Names of functions of torch, NumPy, pandas and Python for rewrites: which are pure, which read, which change."""

from __future__ import annotations

from gpudoc.fix.flow import FILLING
from gpudoc.fix.source import Source
from gpudoc.fix.tree import words
from gpudoc.patterns import Pattern


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# return the same numbers whenever they are called with the same numbers
FACTORIES = _set("""
    zeros ones full eye arange linspace logspace tensor as_tensor tril_indices triu_indices array hann_window
    hamming_window
""")
PURE = FACTORIES | _set("""
    triu tril exp log sqrt sin cos pow abs neg stack cat outer meshgrid reshape view unsqueeze squeeze expand repeat
    transpose t permute flatten bool float long int half double to logical_not masked_fill cumsum flip diag clone
    size numel contiguous sum mean max min range len list tuple type from_numpy astype device
""")
# functions of torch and NumPy on numbers and tables: equal results for equal arguments
PURE_MORE = _set("""
    zeros_like ones_like full_like asarray hypot floor ceil round where clip clamp concatenate vstack hstack tile
    sign tan tanh atan2 arctan2 degrees radians item tolist copy roll rot90 any all kron numpy
    ascontiguousarray inverse inv pinv cholesky softmax log2 log10 maximum minimum square product combinations
    permutations rsqrt cdist pdist normalize cosine_similarity sigmoid relu erf expm1 log1p log_softmax prod cumprod
    einsum matmul mm bmm mv dot norm std var argsort sort topk argmax argmin one_hot searchsorted bucketize gather
    index_select logsumexp softplus
""")
# methods that only read their object
LOOKS = _set("""
    argmax argmin eq ne gt lt ge le norm std var topk median quantile detach cpu items values keys get format join
    strip named_parameters parameters named_buffers state_dict histc count_nonzero nonzero unique bincount mul div add
    sub matmul mm dot unbind chunk split get_last_lr svd det trace isnan isinf isfinite corrcoef cov logsumexp
""")
# functions that make a new table, which no other name shares
FRESH = (FACTORIES | _set("zeros_like ones_like full_like stack cat concatenate tile outer triu tril")) - _set("""
    as_tensor from_numpy asarray
""")
# methods that change their table
FILLS = _set("append extend insert fill_ fill masked_fill_ fill_diagonal_ zero_ mul_ add_ sub_ div_ copy_ index_fill_")
PLAIN_CALLS = _set("""
    range len int float bool str min max abs sum list tuple enumerate zip sorted reversed round pow divmod
""")
READERS = _set("""
    json.load numpy.load numpy.loadtxt numpy.genfromtxt pandas.read_csv pandas.read_json pandas.read_parquet
    pandas.read_pickle pandas.read_feather pandas.read_excel pickle.load torch.load yaml.safe_load
    safetensors.torch.load_file
""")
READING = _set("open read_text read_bytes")
# calls that may surround a reader: equal results for equal text
PARSING = _set("""
    load loads loadtxt genfromtxt read_csv read_json read_parquet read_pickle read_feather read_excel safe_load
    load_file open read read_text read_bytes readlines splitlines split strip rstrip reader DictReader list dict tuple
    Path join str int float array asarray to_numpy astype set_index sort_values reset_index to_dict
""")
WRITERS = _set("to_csv to_parquet to_json to_pickle savetxt write_text write_bytes savez save_file")
# objects without state between two calls
BUILDERS = _set("""
    re.compile tiktoken.get_encoding tiktoken.encoding_for_model
""")
# functions that return a data set which reads the samples of another one
PARTS_OF_DATA = frozenset({"torch.utils.data.Subset", "torch.utils.data.random_split"})
PRETRAINED = Pattern(r"^transformers\.\w*Tokenizer\w*\.from_pretrained$")
TRANSFORM = Pattern(
    r"^torchvision\.transforms(?:\.v2)?\."
    r"(?:Compose|Resize|CenterCrop|ToTensor|Normalize|Grayscale|Pad|ConvertImageDtype|ToDtype|ToImage)$"
)
# usual names for settings from the command line or a file
OPTIONS = _set("args cfg config opt opts options hparams params FLAGS flags")
# functions that certainly leave their argument as it is
READS_ONLY = _set("""
    len tensor array sorted enumerate zip list tuple dict set float int str min max sum isinstance range print any all
    map filter reversed masked_fill masked_select matmul bmm expand_as type_as
""")
# methods that change their object
CHANGING = FILLING | _set("""
    pop popleft popitem clear remove sort reverse fill resize setflags drop add_tokens add_special_tokens
    enable_truncation enable_padding
""")
# methods that return a view of the same memory
VIEWS = _set("""
    view view_as reshape t permute transpose squeeze unsqueeze flatten ravel expand narrow select diagonal unbind chunk
    split numpy detach contiguous swapaxes
""")
DRAWS = Pattern(r"rand|normal|uniform|bernoulli|multinomial|shuffle|sample|choice|seed|empty")
# layers and functions that return something else the second time, or change the model
CHANGES_FORWARD = Pattern(
    r"(?i)dropout|drop_?path|batch_?norm|instance_?norm|rrelu|gumbel|bernoulli|multinomial|sample$|spectral_norm"
)
# statistics of a batch, or numbers that are kept from forward to forward
STATISTICS = Pattern(r"(?i)batch_?norm|instance_?norm|syncbatch|track_running_stats|\bghost_?norm|spectral_norm")


def words_like(source: Source, pattern: Pattern) -> str:
    """The first name of a file, in alphabetical order, that a pattern finds; '' if there is none."""
    return next((word for word in sorted(words(source)) if pattern.search(word)), "")
