# find_package(Monobloc) offers models to CMake projects:
#
#   monobloc_add_model(kws MODEL kws.onnx [NAME prefix] [OPTIONS --threads 2 ...])
#   target_link_libraries(app PRIVATE kws)
#
# makes the object and its header when the model changes. What links `kws` also finds <prefix>.h.
# A build with CC="monobloc cc" compiles the model again at the link, together with the program; any
# other compiler links the object's native code.

if(CMAKE_VERSION VERSION_LESS 3.20)
  set(Monobloc_FOUND FALSE)
  set(Monobloc_NOT_FOUND_MESSAGE "Monobloc's functions need CMake 3.20 or newer")
  return()
endif()

# The file lies in an environment's share/cmake/Monobloc, or in the Python package itself.
get_filename_component(_monobloc_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_program(MONOBLOC_EXECUTABLE monobloc HINTS "${_monobloc_prefix}/bin" DOC "the program `monobloc`")
if(NOT MONOBLOC_EXECUTABLE)
  set(Monobloc_FOUND FALSE)
  set(Monobloc_NOT_FOUND_MESSAGE "no program `monobloc` in PATH: set MONOBLOC_EXECUTABLE")
  return()
endif()

function(monobloc_add_model target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MODEL;NAME" "OPTIONS")
  if(NOT arg_MODEL)
    message(FATAL_ERROR "monobloc_add_model(${target}): no MODEL")
  endif()
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "monobloc_add_model(${target}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_NAME)
    set(arg_NAME "${target}")
  endif()
  get_filename_component(model "${arg_MODEL}" ABSOLUTE)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/models/${target}")
  set(object "${folder}/${target}.o")
  set(header "${folder}/${arg_NAME}.h")
  file(MAKE_DIRECTORY "${folder}")

  add_custom_command(
    OUTPUT "${object}" "${header}"
    COMMAND "${MONOBLOC_EXECUTABLE}" compile "${model}" -o "${object}" --header "${header}" --name "${arg_NAME}"
            --depfile "${object}.d" ${arg_OPTIONS}
    DEPENDS "${model}"
    DEPFILE "${object}.d"
    COMMENT "Compiling model ${arg_MODEL}"
    VERBATIM)
  add_custom_target("${target}_model" DEPENDS "${object}" "${header}")

  add_library("${target}" OBJECT IMPORTED GLOBAL)
  set_target_properties("${target}" PROPERTIES
    IMPORTED_OBJECTS "${object}"
    INTERFACE_INCLUDE_DIRECTORIES "${folder}")
  add_dependencies("${target}" "${target}_model")
endfunction()
