whatis("Sets HPCKIT_DEMO_MODULE, so that a test can see that it was loaded.")
setenv("HPCKIT_DEMO_MODULE", "2.0")
