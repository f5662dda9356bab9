def _refuse(*_arguments):
    raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")


_cuda_memoryStats = _cuda_resetPeakMemoryStats = _cuda_resetAccumulatedMemoryStats = _refuse
_cuda_customAllocator = None
