#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The routes program for ctypes: ctypes' own dlsym finds the functions. usage: routes_ctypes.py CALLER_LIBRARY SYMBOL..."""
import ctypes
import sys

cublas = ctypes.CDLL("libcublas.so.13")
cublaslt = ctypes.CDLL("libcublasLt.so.13")
LOOKUP = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)


@LOOKUP
def look_up(name):
    name = name.decode()
    library = cublaslt if name.startswith("cublasLt") else cublas
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


caller = ctypes.CDLL(sys.argv[1])
caller.caller_call.argtypes = [ctypes.c_char_p, LOOKUP]
for symbol in sys.argv[2:]:
    print(symbol, caller.caller_call(symbol.encode(), look_up))
