"""What operators talk to: the services that read and edit the configuration and look after queries, and the
admin API over them.
"""
