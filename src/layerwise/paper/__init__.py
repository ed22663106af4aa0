"""The paper's figures and tables as files: what each shows, and the steps that make it at three scales."""
