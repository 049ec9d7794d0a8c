// A second device for tests: its memory is the host's and its arithmetic the CPU's, so values are real, but a tensor of
// it that meets one of the CPU is refused, as on a GPU. Everything goes through one boxed fallback.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <string>

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

void release(void* pointer) { c10::free_cpu(pointer); }

struct HostAllocator final : at::Allocator {
  at::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    return {data, data, &release, at::Device(kDevice, 0)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override { std::memcpy(to, from, count); }
};

HostAllocator allocator;
REGISTER_ALLOCATOR(kDevice, &allocator);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }
  at::Device exchangeDevice(at::Device) const override { return at::Device(kDevice, 0); }
  at::Device getDevice() const override { return at::Device(kDevice, 0); }
  void setDevice(at::Device) const override {}
  void uncheckedSetDevice(at::Device) const noexcept override {}
  at::Stream getStream(at::Device device) const override { return at::Stream(at::Stream::DEFAULT, device); }
  at::Stream getNewStream(at::Device device, int) const override { return at::Stream(at::Stream::DEFAULT, device); }
  at::Stream exchangeStream(at::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const at::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const at::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const at::Stream&) const override { return true; }
  void synchronizeStream(const at::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};
Hooks hooks;
const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the CPU.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.device().type() != kDevice) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU).requires_grad(false));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  on_host(to).copy_(on_host(from));
  return to;
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto bytes = at::detail::computeStorageNbytesContiguous(C10_AS_INTARRAYREF_SLOW(size), self.element_size());
  auto storage = self.storage();
  if (storage.nbytes() < bytes) {
    auto data = allocator.allocate(bytes);
    std::memcpy(data.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  return self;
}

at::Tensor on_device(const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::Device(kDevice, 0)) : tensor; }

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  std::optional<at::Tensor> shift;
  if (bias.has_value() && bias->defined()) shift = on_host(*bias);
  return on_device(at::convolution(on_host(input), on_host(weight), shift, stride, padding, dilation, transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> mask) {
  std::vector<int64_t> biases{transposed ? weight.size(1) * groups : weight.size(0)};
  auto [a, b, c] = at::convolution_backward(on_host(gradient), on_host(input), on_host(weight), at::OptionalIntArrayRef(biases),
                                            stride, padding, dilation, transposed, output_padding, groups, mask);
  return {on_device(a), on_device(b), on_device(c)};
}

// Moves running statistics in place, which its schema doesn't say.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& mean, const std::optional<at::Tensor>& var, bool training, double momentum, double eps) {
  auto host = [](const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() && tensor->defined() ? std::optional<at::Tensor>(on_host(*tensor)) : std::nullopt;
  };
  auto [a, b, c] = at::native_batch_norm(on_host(input), host(weight), host(bias), host(mean), host(var), training, momentum, eps);
  return {on_device(a), on_device(b), on_device(c)};
}

// Indices may be the host's, as on a GPU.
bool takes_host_indices(const std::string& name) { return name.find("aten::index") == 0 || name.find("aten::_index_put") == 0; }

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = op.schema().arguments().size();
  const auto name = op.schema().name();
  for (const auto& value : torch::jit::last(*stack, count)) {
    if (value.isTensor()) {
      const auto& tensor = value.toTensor();
      TORCH_CHECK(!tensor.defined() || tensor.device().type() == kDevice || tensor.dim() == 0 || takes_host_indices(name),
                  name, " was given tensors of the CPU and of the second device");
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        TORCH_CHECK(!tensor.defined() || tensor.device().type() == kDevice || takes_host_indices(name), name,
                    " was given tensors of the CPU and of the second device");
      }
    }
  }
  at::native::cpu_fallback(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize);
  m.impl("native_batch_norm", &batch_norm);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
}
