whatis("Refuses to load unless hpckit-demo is loaded before it, so that the order matters.")
prereq("hpckit-demo")
setenv("HPCKIT_NEEDS_DEMO_MODULE", "1.0")
