"""The official Java clients on whatever speaks the remoting protocol.

stage     the servers under test: ours, Apache's, or those at a given address
puppet    a Java program full of clients that does what it is told
scenario  how a scenario is registered and run
others    the scenarios, by theme
"""
