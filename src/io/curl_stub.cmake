# Links programs for other distributions with a stub of libcurl.so.4. Debian's library has versioned
# symbols, which others lack: a program linked with it prints a warning there at each start. The
# linker reports functions that this list lacks.
set(functions easy_cleanup easy_getinfo easy_init easy_perform easy_reset easy_setopt easy_strerror free getdate
              global_init multi_add_handle multi_cleanup multi_info_read multi_init multi_perform
              multi_poll multi_remove_handle multi_wakeup slist_append slist_free_all url url_cleanup
              url_get url_set)
list(TRANSFORM functions REPLACE "(.+)" "void curl_\\1(void) {}")
string(REPLACE ";" "\n" text "${functions}")
set(stub ${CMAKE_BINARY_DIR}/curl_stub)
file(WRITE ${stub}/curl.c "${text}\n")
execute_process(COMMAND ${CMAKE_C_COMPILER} -shared -fPIC -Wl,-soname,libcurl.so.4
                        -o ${stub}/libcurl.so.4 ${stub}/curl.c
                COMMAND_ERROR_IS_FATAL ANY)
set_target_properties(CURL::libcurl PROPERTIES IMPORTED_LOCATION ${stub}/libcurl.so.4
                                               IMPORTED_LOCATION_RELEASE ${stub}/libcurl.so.4)
set(CMAKE_SKIP_RPATH ON)  # or programs in the build tree would load the stub
