// Mesa's lavapipe (LAVAPIPE) as a Vulkan driver that Dawn accepts. Dawn requires that shaders can
// index arrays of textures and of images. Debian 12's lavapipe cannot, and no kernel has such
// arrays. So these features are reported, and not passed on when a device is created.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace {

using Function = void (*)();

constexpr uint32_t kFeaturesType = 1000059000;
// shaderSampledImageArrayDynamicIndexing, shaderStorageImageArrayDynamicIndexing
constexpr int kIndexed[] = {34, 36};

struct Features {  // VkPhysicalDeviceFeatures2; VkDeviceCreateInfo begins in the same way
  uint32_t type;
  Features* next;
  uint32_t values[55];
};

void (*own_features)(void* device, Features*);
int32_t (*own_create)(void* device, Features* info, const void* allocator, void** out);

void get_features(void* device, Features* features) {
  own_features(device, features);
  for (int i : kIndexed) features->values[i] = 1;
}

int32_t create_device(void* device, Features* info, const void* allocator, void** out) {
  for (Features* next = info->next; next; next = next->next)
    if (next->type == kFeaturesType)
      for (int i : kIndexed) next->values[i] = 0;
  return own_create(device, info, allocator, out);
}

/// `by` instead of lavapipe's function, which `own` receives.
template <typename F>
Function replace(Function found, F*& own, F* by) {
  own = reinterpret_cast<F*>(found);
  return reinterpret_cast<Function>(by);
}

}  // namespace

extern "C" Function vk_icdGetInstanceProcAddr(void* instance, const char* name) {
  static void* const library = dlopen(LAVAPIPE, RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;
  static void* const symbol = dlsym(library, "vk_icdGetInstanceProcAddr");
  if (!symbol) return nullptr;
  const Function found = reinterpret_cast<Function (*)(void*, const char*)>(symbol)(instance, name);
  const std::string_view wanted = name;
  if (found && wanted == "vkGetPhysicalDeviceFeatures2")
    return replace(found, own_features, get_features);
  if (found && wanted == "vkCreateDevice") return replace(found, own_create, create_device);
  return found;
}

extern "C" int32_t vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t* version) {
  *version = std::min(*version, 5u);
  return 0;
}
