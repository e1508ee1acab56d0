# embed_files(OUTPUT NAMESPACE FUNCTION file ...)
# makes OUTPUT, a .cc that defines `std::span<const trireme::EmbeddedFile> NAMESPACE::FUNCTION()`: the texts of the files,
# in this order. It is made again when a file changes.
set(embed_script "${CMAKE_CURRENT_LIST_DIR}/embed_script.cmake")
function(embed_files output namespace function)
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" "-DNAMESPACE=${namespace}" "-DFUNCTION=${function}"
            -P "${embed_script}" -- ${ARGN}
    DEPENDS "${embed_script}" ${ARGN}
    COMMENT "Embedding ${function}"
    VERBATIM)
endfunction()
