// SPDX-License-Identifier: MIT
// Two majors of cuBLAS and cudart in one process: each is its own library with its own numbers and handles, and both
// work on the same device.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace {

// A library of major 12 beside the linked ones, as a plugin would load it.
class Older {
 public:
  explicit Older(const char* soname) : library_(dlopen(soname, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  ~Older() {
    if (library_) dlclose(library_);
  }
  template <typename Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }
  void* handle() const { return library_; }

 private:
  void* library_;
};

TEST(Majors, EachHasItsNumbersAndRefusesTheOthersHandles) {
  const Older cublas("libcublas.so.12");
  const auto create = cublas.find<cublasStatus_t(cublasHandle_t*)>("cublasCreate_v2");
  const auto destroy = cublas.find<cublasStatus_t(cublasHandle_t)>("cublasDestroy_v2");
  const auto version = cublas.find<cublasStatus_t(cublasHandle_t, int*)>("cublasGetVersion_v2");
  const auto property = cublas.find<cublasStatus_t(libraryPropertyType, int*)>("cublasGetProperty");
  const auto set_stream = cublas.find<cublasStatus_t(cublasHandle_t, cudaStream_t)>("cublasSetStream_v2");
  ASSERT_NE(create, nullptr);
  ASSERT_NE(create, &cublasCreate_v2);
  cublasHandle_t older = nullptr;
  cublasHandle_t newer = nullptr;
  ASSERT_EQ(create(&older), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasCreate(&newer), CUBLAS_STATUS_SUCCESS);
  int number = 0;
  ASSERT_EQ(version(older, &number), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(number, 120903);
  ASSERT_EQ(property(MAJOR_VERSION, &number), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(number, 12);
  ASSERT_EQ(cublasGetVersion(newer, &number), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(number, CUBLAS_VERSION);
  EXPECT_EQ(set_stream(newer, nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasSetStream(older, nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(set_stream(older, nullptr), CUBLAS_STATUS_SUCCESS);

  float* x = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&x), 8), cudaSuccess);
  const float values[] = {3.0f, 1.0f};
  ASSERT_EQ(cudaMemcpy(x, values, sizeof values, cudaMemcpyHostToDevice), cudaSuccess);
  const float one = 1.0f;
  const auto sgemm = cublas.find<decltype(cublasSgemm_v2)>("cublasSgemm_v2");
  ASSERT_EQ(sgemm(older, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x, 1, x, 1, &one, x + 1, 1), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSgemm(newer, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x, 1, x, 1, &one, x + 1, 1),
            CUBLAS_STATUS_SUCCESS);
  float got = 0.0f;
  ASSERT_EQ(cudaMemcpy(&got, x + 1, sizeof got, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(got, 19.0f);
  EXPECT_EQ(cudaFree(x), cudaSuccess);
  EXPECT_EQ(destroy(older), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasDestroy(newer), CUBLAS_STATUS_SUCCESS);
}

// libcublas.so.12 brings libcublasLt.so.12 and not the other.
TEST(Majors, EachLoadsItsOwnLt) {
  const Older cublas("libcublas.so.12");
  Dl_info info{};
  ASSERT_NE(dladdr(dlsym(cublas.handle(), "cublasCreate_v2"), &info), 0);
  FILE* pipe = popen(("readelf -dW " + std::string(info.dli_fname)).c_str(), "r");
  std::string text;
  char part[4096];
  while (pipe && std::fgets(part, sizeof part, pipe)) text += part;
  if (pipe) pclose(pipe);
  EXPECT_NE(text.find("[libcublas.so.12]"), std::string::npos) << text;
  EXPECT_NE(text.find("[libcublasLt.so.12]"), std::string::npos) << text;
  EXPECT_EQ(text.find(".so.13]"), std::string::npos) << text;
  EXPECT_NE(text.find("SYMBOLIC"), std::string::npos) << text;
}

// What only the newer one has is not there in the older.
TEST(Majors, NamesOfOneMajorAreNotInTheOther) {
  const Older cublas("libcublas.so.12");
  const Older lt("libcublasLt.so.12");
  EXPECT_EQ(cublas.find<void()>("cublasSetFixedPointEmulationMantissaControl"), nullptr);
  EXPECT_NE(dlsym(RTLD_DEFAULT, "cublasSetFixedPointEmulationMantissaControl"), nullptr);
  EXPECT_NE(lt.find<void()>("cublasLt_for_cublas_CCC"), nullptr);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "cublasLt_for_cublas_CCC"), nullptr);
}

TEST(Majors, RuntimeTwelve) {
  const Older cudart("libcudart.so.12");
  const auto version = cudart.find<cudaError_t(int*)>("cudaRuntimeGetVersion");
  ASSERT_NE(version, nullptr);
  int number = 0;
  ASSERT_EQ(version(&number), cudaSuccess);
  EXPECT_EQ(number, 12090);
  ASSERT_EQ(cudaRuntimeGetVersion(&number), cudaSuccess);
  EXPECT_EQ(number, CUDART_VERSION);
  const auto allocate = cudart.find<cudaError_t(void**, size_t)>("cudaMalloc");
  void* memory = nullptr;
  ASSERT_EQ(allocate(&memory, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);  // one device, one address space
}

}  // namespace
