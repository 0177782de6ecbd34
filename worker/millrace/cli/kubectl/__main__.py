from millrace.cli.kubectl import main

main()
