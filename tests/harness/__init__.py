"""Black-box test harness: real daemons, raw frames, TAP output.

remoting  the remoting protocol from the client's side, independent of the C codec
daemon    one oncemqd process on free ports in a temporary folder
apache    an Apache RocketMQ name server or broker beside it
redis     a redis-server of one release, for libonce
proxy     a TCP relay that shows every frame that passes
tap       test registration and the Test Anything Protocol
process   starting, watching and surely ending child processes
"""
