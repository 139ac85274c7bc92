"""What happens to schedule files at job launch: which one a call uses, and what keeps it from being used.

The rules are data in `collc.runtimes.launch`; here is the code that reads a directory, an environment
or a debug log by them. Nothing here starts a job or touches a GPU.
"""
