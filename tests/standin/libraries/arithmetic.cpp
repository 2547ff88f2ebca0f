// Real arithmetic: device memory is host memory, so what a CUDA operator leaves out, its CPU twin fills in.
//
// Each CUDA kernel of the dispatcher is replaced by one that first computes the answer on the CPU from aliases of the
// same memory, then runs PyTorch's own CUDA code for all that it does beside numbers (allocation, streams, launches,
// checks), and last writes the answer into what that code allocated. What has no twin on the CPU gets no numbers.
// STANDIN_MATH=0 leaves all numbers out. The time of an operator is modelled in any case, from its bytes.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>
#include <chrono>
#include <cstdlib>
#include <set>
#include <unordered_map>

using c10::IValue;
using Stack = torch::jit::Stack;
extern "C" {
void standin_fault(int error);
void standin_aside(long ns);
void standin_settle(void);
void standin_operator(int begin, double bytes, double ns);
int standin_physical(int device);
}

namespace {
struct Aside {  // the time that it lives is no time to the GPU
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  ~Aside() {
    auto spent = std::chrono::steady_clock::now() - start;
    standin_aside((long)std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
  }
};
// what the CPU computes in the GPU's place is neither recorded for backward nor cast
struct Plain {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                           c10::autocast_dispatch_keyset};
};
struct Entry {
  c10::SafeKernelFunction original;
  bool seeded, silent = false;
};
std::unordered_map<c10::OperatorName, Entry> table;
thread_local bool covered = false;  // an operator further out has its answer already

// no numbers in them, or their numbers move by memcpy
const std::set<std::string> LEFT_ALONE = {
    "aten::set_", "aten::resize_", "aten::_resize_output_", "aten::record_stream", "aten::_local_scalar_dense",
    "aten::is_pinned", "aten::_pin_memory", "aten::empty_strided", "aten::empty", "aten::_empty_affine_quantized",
    "aten::resize_as_", "aten::is_set_to", "aten::_efficientzerotensor", "aten::_cudnn_init_dropout_state",
    "aten::_nested_tensor_size", "aten::_has_same_storage_numel"};
// the CPU's answer is given as it is: PyTorch's own code would read its size, or itself, from what a kernel left
const std::set<std::string> ANSWERED_BY_CPU = {
    "aten::equal", "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::_unique", "aten::unique_dim",
    "aten::unique_consecutive", "aten::unique_dim_consecutive", "aten::repeat_interleave", "aten::bincount"};
// they write what they change without reading it
const std::set<std::string> ONLY_WRITTEN = {
    "aten::fill_", "aten::zero_", "aten::copy_", "aten::uniform_", "aten::normal_", "aten::bernoulli_", "aten::random_",
    "aten::exponential_"};

bool on_gpu(const at::Tensor& t) { return t.defined() && t.is_cuda() && t.layout() == at::kStrided; }

at::Tensor mirror(const at::Tensor& t) {
  if (!on_gpu(t)) return t;
  auto options = at::TensorOptions().dtype(t.dtype()).device(at::kCPU);
  if (t.numel() == 0) return at::empty_strided(t.sizes(), t.strides(), options);
  return at::from_blob(const_cast<void*>(t.const_data_ptr()), t.sizes(), t.strides(), options);
}
at::Tensor wide(const at::Tensor& t) {
  return t.defined() && (t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16) ? t.to(at::kFloat) : t;
}

template <class Change>
IValue over(const IValue& value, Change change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& t : value.toTensorVector()) out.push_back(change(t));
    return out;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
      out.push_back(t ? std::optional<at::Tensor>(change(*t)) : std::nullopt);
    return out;
  }
  return value;
}
template <class Visit>
void each(const IValue& value, Visit visit) {
  over(value, [&](const at::Tensor& t) { visit(t); return t; });
}

// ---- operators without a twin of the same name

using Args = std::vector<IValue>;
at::Tensor scores(const at::Tensor& q, const at::Tensor& k, const IValue& bias, bool causal, double scale) {
  at::Tensor s = at::matmul(q, k.transpose(-2, -1)) * scale;
  if (causal) s = s.masked_fill(at::ones({q.size(-2), k.size(-2)}, at::kBool).triu(1), -INFINITY);
  return bias.isTensor() && bias.toTensor().defined() ? s + bias.toTensor() : s;
}
double scale_of(const IValue& given, const at::Tensor& q) {
  return given.isNone() ? 1 / std::sqrt((double)q.size(-1)) : given.toDouble();
}
Stack attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const IValue& bias, bool causal,
             const IValue& scale) {
  at::Tensor s = scores(q, k, bias, causal, scale_of(scale, q));
  return {at::matmul(at::softmax(s, -1), v), at::logsumexp(s, {-1})};
}
Stack attend_back(const at::Tensor& g, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const IValue& bias, bool causal, const IValue& scale) {
  double f = scale_of(scale, q);
  at::Tensor p = at::softmax(scores(q, k, bias, causal, f), -1), dp = at::matmul(g, v.transpose(-2, -1));
  at::Tensor ds = p * (dp - (dp * p).sum(-1, true));
  return {at::matmul(ds, k) * f, at::matmul(ds.transpose(-2, -1), q) * f, at::matmul(p.transpose(-2, -1), g)};
}
at::Tensor tensor(const Args& a, size_t i) { return a[i].toTensor(); }
std::optional<at::Tensor> maybe(const Args& a, size_t i) { return a[i].toOptional<at::Tensor>(); }
const std::unordered_map<std::string, Stack (*)(Args&)> TWINS = {
    {"aten::_scaled_dot_product_flash_attention", [](Args& a) {
       return attend(tensor(a, 0), tensor(a, 1), tensor(a, 2), IValue(), a[4].toBool(), a[6]); }},
    {"aten::_scaled_dot_product_efficient_attention", [](Args& a) {
       return attend(tensor(a, 0), tensor(a, 1), tensor(a, 2), a[3], a[6].toBool(), a[7]); }},
    {"aten::_scaled_dot_product_flash_attention_backward", [](Args& a) {
       return attend_back(tensor(a, 0), tensor(a, 1), tensor(a, 2), tensor(a, 3), IValue(), a[11].toBool(), a[14]); }},
    {"aten::_scaled_dot_product_efficient_attention_backward", [](Args& a) {
       return attend_back(tensor(a, 0), tensor(a, 1), tensor(a, 2), tensor(a, 3), a[4], a[11].toBool(), a[12]); }},
    {"aten::cudnn_batch_norm", [](Args& a) {
       auto [out, mean, deviation] = at::native_batch_norm(
           tensor(a, 0), tensor(a, 1), maybe(a, 2), maybe(a, 3), maybe(a, 4), a[5].toBool(), a[6].toDouble(),
           a[7].toDouble());
       return Stack{out, mean, deviation}; }},
    {"aten::cudnn_batch_norm_backward", [](Args& a) {
       auto [input, weight, bias] = at::native_batch_norm_backward(
           tensor(a, 1), tensor(a, 0), tensor(a, 2), maybe(a, 3), maybe(a, 4), maybe(a, 5), maybe(a, 6), true,
           a[7].toDouble(), {true, true, true});
       return Stack{input, weight, bias}; }},
    {"aten::_scaled_mm", [](Args& a) {
       at::Tensor product = at::matmul(tensor(a, 0).to(at::kFloat), tensor(a, 1).to(at::kFloat));
       return Stack{product * tensor(a, 2) * tensor(a, 3)}; }},
};

// ---- how much work it would be

std::vector<at::Tensor> tensors_of(const Args& args) {
  std::vector<at::Tensor> found;
  for (const IValue& value : args) each(value, [&](const at::Tensor& t) { if (t.defined()) found.push_back(t); });
  return found;
}
double convolution_operations(const std::string& name, const std::vector<at::Tensor>& given) {
  if (name == "aten::convolution" && given.size() > 1)
    return 2.0 * (double)given[0].numel() * (double)given[1].numel() / (double)given[1].size(1);
  if (name == "aten::convolution_backward" && given.size() > 2)
    return 4.0 * (double)given[1].numel() * (double)given[2].numel() / (double)given[2].size(1);
  return 0;
}
double work(const std::string& name, const Args& args) {
  std::vector<at::Tensor> given = tensors_of(args);
  size_t second = name.find("add") != std::string::npos ? 2 : 1;
  if (name.find("mm") != std::string::npos && given.size() > second && given[second].dim() > 0)
    return 2.0 * (double)given[second - 1].numel() * (double)given[second].size(-1);
  if (double operations = convolution_operations(name, given)) return operations;
  double elements = 0;
  for (const at::Tensor& t : given) elements += (double)t.numel();
  return elements;
}
double limit() {
  static double value = std::getenv("STANDIN_MATH_OPS") ? std::atof(std::getenv("STANDIN_MATH_OPS")) : 1e11;
  return value;
}
bool is_computed() {
  static bool value = !std::getenv("STANDIN_MATH") || std::string(std::getenv("STANDIN_MATH")) != "0";
  return value;
}
// read once what goes in, written once what comes out, both for what is changed in place
double bytes_moved(const c10::OperatorHandle& op, const Args& args) {
  double bytes = 0;
  for (size_t i = 0; i < args.size(); i++) {
    const auto& argument = op.schema().arguments()[i];
    bool written = argument.alias_info() && argument.alias_info()->isWrite();
    bool twice = written && !argument.is_out() && !ONLY_WRITTEN.count(op.operator_name().name);
    each(args[i], [&](const at::Tensor& t) { if (on_gpu(t)) bytes += (twice ? 2.0 : 1.0) * (double)t.nbytes(); });
  }
  return bytes;
}
struct Timed {  // the modelled time of one operator of PyTorch's, which launches as many kernels as it likes
  double bytes, operations;
  Timed(const c10::OperatorHandle& op, const Args& args)
      : bytes(bytes_moved(op, args)), operations(convolution_operations(op.operator_name().name, tensors_of(args))) {
    standin_operator(1, 0, 0);
  }
  void count_results(const c10::OperatorHandle& op, const Stack& stack) {
    const auto& returns = op.schema().returns();
    for (size_t i = 0; i < returns.size(); i++) {
      if (returns[i].alias_info()) continue;  // an argument, which is counted
      each(stack[stack.size() - returns.size() + i], [&](const at::Tensor& t) {
        if (on_gpu(t)) bytes += (double)t.nbytes();
      });
    }
  }
  ~Timed() {
    const char* speed = std::getenv("STANDIN_TFLOPS");
    standin_operator(0, bytes, operations / ((speed ? std::atof(speed) : 600) * 1e3));
  }
};

// ---- the kernel that stands for all

void note(Entry& entry, const c10::OperatorHandle& op, const char* why) {
  const char* path = std::getenv("STANDIN_TRACE");
  FILE* file = path && !entry.silent ? std::fopen(path, "a") : nullptr;
  const auto& name = op.operator_name();
  if (file) {
    std::fprintf(file, "no numbers: %s.%s: %.200s\n", name.name.c_str(), name.overload_name.c_str(), why);
    std::fclose(file);
  }
  entry.silent = true;
}

std::optional<Stack> compute(const c10::OperatorHandle& op, Entry& entry, const Args& args, Args& host) {
  Aside aside;
  const auto& schema = op.schema();
  const std::string& name = op.operator_name().name;
  bool widen = name != "aten::copy_" && !ANSWERED_BY_CPU.count(name) && name.find("view") == std::string::npos;
  at::Generator drawing;
  for (size_t i = 0; i < args.size(); i++) {
    const auto* written = schema.arguments()[i].alias_info();
    bool changes = written && written->isWrite();
    host.push_back(over(args[i], [&](const at::Tensor& t) {
      if (!t.defined()) return t;
      at::Tensor seen = mirror(t), made = widen ? wide(seen) : seen;
      return changes && made.is_same(seen) ? seen.clone() : made;
    }));
    if (args[i].isDevice()) host.back() = c10::Device(at::kCPU);
    if (schema.arguments()[i].name() == "half_to_float") host.back() = false;
    if (widen && schema.arguments()[i].name() == "input_dtype") host.back() = (int64_t)at::kFloat;
  }
  Plain plain;
  std::optional<at::Tensor> kept;
  at::Generator common = at::detail::getDefaultCPUGenerator();
  if (entry.seeded) {  // the CUDA generator's state decides, and is moved on by PyTorch's own code
    at::Device here(at::kCUDA, at::detail::getCUDAHooks().getCurrentDevice());
    at::Generator gpu = at::globalContext().defaultGenerator(here);
    bool has_argument = false;
    size_t place = 0;
    for (size_t i = 0; i < args.size(); i++) if (schema.arguments()[i].name() == "generator") {
      has_argument = true, place = i;
      if (args[i].isGenerator()) gpu = args[i].toGenerator();
    }
    uint64_t seed = gpu.current_seed() * 0x9e3779b97f4a7c15ull + gpu.get_offset() * 2654435761ull + 1;
    if (has_argument) host[place] = at::detail::createCPUGenerator(seed);
    else kept = common.get_state(), common.set_current_seed(seed);
  }
  std::optional<Stack> out;
  try {
    auto twin = TWINS.find(name);
    if (twin != TWINS.end()) out = twin->second(host);
    else {
      Stack stack(host.begin(), host.end());
      op.callBoxed(&stack);
      out = std::move(stack);
    }
  } catch (const c10::IndexError&) {
    standin_fault(710);  // as a kernel would assert
  } catch (const std::exception& problem) {
    note(entry, op, problem.what());
  }
  if (kept) common.set_state(*kept);
  return out;
}

void put(const at::Tensor& to, const at::Tensor& from) {
  bool fits = to.defined() && from.defined() && to.sizes() == from.sizes();
  if (fits && (on_gpu(to) || to.is_cpu())) mirror(to).copy_(from);
}
void put_all(const IValue& to, const IValue& from) {
  std::vector<at::Tensor> targets;
  each(to, [&](const at::Tensor& t) { targets.push_back(t); });
  size_t next = 0;
  each(from, [&](const at::Tensor& t) { if (next < targets.size()) put(targets[next], t); next++; });
}

// STANDIN_CORRUPT_GPU=N: of each product there one value is off by its last bit, which no rounding gives away
void corrupt(const std::string& name, const at::Device& device, const IValue& result) {
  static const char* which = std::getenv("STANDIN_CORRUPT_GPU");
  if (!which || name.find("mm") == std::string::npos || standin_physical(device.index()) != std::atoi(which)) return;
  each(result, [&](const at::Tensor& t) {
    if (on_gpu(t) && t.numel()) *(unsigned char*)const_cast<void*>(t.const_data_ptr()) ^= 1;
  });
}

// plain copies are memcpy's; the stand-in's own kernel for constants writes them, and zeros without touching the pages
bool moves_by_itself(const std::string& name, const Args& args) {
  if (name == "aten::zero_" || name == "aten::fill_") {
    const at::Tensor& to = args[0].toTensor();
    return to.is_non_overlapping_and_dense() && !to.is_complex();
  }
  if (name != "aten::copy_") return false;
  const at::Tensor &to = args[0].toTensor(), &from = args[1].toTensor();
  bool same = to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes();
  return same && to.is_contiguous() && from.is_contiguous();
}

void stand_for(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  Entry& entry = table.at(op.operator_name());
  const auto& schema = op.schema();
  const std::string& name = op.operator_name().name;
  bool by_cpu = ANSWERED_BY_CPU.count(name);
  Args args(stack->end() - (long)schema.arguments().size(), stack->end()), host;
  std::optional<Stack> answer;
  bool moved = moves_by_itself(name, args);
  at::Device device(at::kCUDA, 0);
  for (const at::Tensor& t : tensors_of(args)) if (on_gpu(t)) device = t.device();
  bool too_much = is_computed() && !covered && !moved && work(name, args) > limit();
  if (too_much) note(entry, op, "more operations than STANDIN_MATH_OPS");
  if (is_computed() && (!covered || by_cpu) && !moved && !too_much) {
    standin_settle();
    Plain plain;
    answer = compute(op, entry, args, host);
  }
  if (answer && by_cpu) {
    torch::jit::drop(*stack, schema.arguments().size());
    for (const IValue& value : *answer) stack->push_back(over(value, [&](const at::Tensor& t) {
      at::Tensor made = at::empty(t.sizes(), t.options().device(device));
      put(made, t);
      return made;
    }));
    return;
  }
  bool before = covered;
  covered = covered || answer.has_value();
  try {
    Timed timed(op, args);
    entry.original.callBoxed(op, keys, stack);
    timed.count_results(op, *stack);
  } catch (...) {
    covered = before;
    throw;
  }
  covered = before;
  if (!answer) return;
  Aside aside;
  Plain plain;
  for (size_t i = 0; i < args.size(); i++) {
    const auto* written = schema.arguments()[i].alias_info();
    if (!written || !written->isWrite()) continue;
    put_all(args[i], host[i]);
    corrupt(name, device, args[i]);
  }
  size_t returns = schema.returns().size();
  for (size_t i = 0; i < returns && i < answer->size(); i++) {
    if (schema.returns()[i].alias_info()) continue;
    put_all((*stack)[stack->size() - returns + i], (*answer)[i]);
    corrupt(name, device, (*stack)[stack->size() - returns + i]);
  }
}

struct Quiet : c10::WarningHandler { void process(const c10::Warning&) override {} };

struct Install {
  std::unique_ptr<torch::Library> library;
  Install() {
    auto& dispatcher = c10::Dispatcher::singleton();
    auto names = dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CUDA);
    for (const char* name : {"copy_", "convolution", "convolution_backward", "cudnn_batch_norm",
                             "cudnn_batch_norm_backward"})
      names.push_back({std::string("aten::") + name, ""});
    Quiet quiet;
    c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    auto kind = torch::Library::IMPL;
    library = std::make_unique<torch::Library>(kind, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    for (const auto& name : names) {
      if (name.name.rfind("aten::", 0) || LEFT_ALONE.count(name.name) || table.count(name)) continue;
      auto op = dispatcher.findSchema(name);
      if (!op || !op->hasComputedKernelForDispatchKey(c10::DispatchKey::CUDA)) continue;
      bool view = false, tensors = ANSWERED_BY_CPU.count(name.name);
      for (const auto& result : op->schema().returns()) {
        view |= result.alias_info() && !result.alias_info()->isWrite();
        tensors |= result.type()->isSubtypeOf(*c10::TensorType::get());
        tensors |= result.type()->isSubtypeOf(*c10::ListType::ofTensors());
      }
      for (const auto& argument : op->schema().arguments())
        tensors |= argument.alias_info() && argument.alias_info()->isWrite();
      if (view || !tensors) continue;
      bool seeded = op->hasTag(at::Tag::nondeterministic_seeded);
      table.emplace(name, Entry{op->getComputedKernelForDispatchKey(c10::DispatchKey::CUDA), seeded});
      std::string own = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
      library->impl(own.c_str(), torch::CppFunction::makeFromBoxedFunction<&stand_for>());
    }
  }
} install;
}  // namespace
